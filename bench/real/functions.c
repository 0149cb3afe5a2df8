/* What takes a C compiler its time: many functions with loops, branches and calls. */
#define FUNCTION(n)                                                                                          \
    int function_##n(int *values, int count) {                                                               \
        int sum = n;                                                                                         \
        for (int i = 0; i < count; i++) {                                                                    \
            if (values[i] % (n + 2) == 0) {                                                                  \
                sum += values[i] * n;                                                                        \
                values[i] ^= sum >> 3;                                                                       \
            } else {                                                                                         \
                switch (values[i] & 3) {                                                                     \
                case 0:                                                                                      \
                    sum -= i;                                                                                \
                    break;                                                                                   \
                case 1:                                                                                      \
                    sum ^= values[count - 1 - i];                                                            \
                    break;                                                                                   \
                default:                                                                                     \
                    sum += sum << 1;                                                                         \
                }                                                                                            \
            }                                                                                                \
        }                                                                                                    \
        return sum;                                                                                          \
    }
/* Laid out by hand: it would break and indent these anew each time. */
/* clang-format off */
#define TEN(n)                                                                                               \
    FUNCTION(1##n##0) FUNCTION(1##n##1) FUNCTION(1##n##2) FUNCTION(1##n##3) FUNCTION(1##n##4)                \
    FUNCTION(1##n##5) FUNCTION(1##n##6) FUNCTION(1##n##7) FUNCTION(1##n##8) FUNCTION(1##n##9)
TEN(0) TEN(1) TEN(2) TEN(3) TEN(4) TEN(5) TEN(6) TEN(7) TEN(8) TEN(9)
TEN(20) TEN(21) TEN(22) TEN(23) TEN(24) TEN(25) TEN(26) TEN(27) TEN(28) TEN(29)
