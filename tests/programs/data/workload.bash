# A load with printed results: arrays, associative arrays, strings, subshells. Argument: a factor.
declare -A table
list=()
for ((i = 0; i < 20000 * $1; i++)); do
    key=$((i * 7919 % 3001))
    if [[ -n ${table[$key]:-} ]]; then
        unset "table[$key]"
    else
        table[$key]="value-$i-${key}"
    fi
    list+=("$i")
    if ((${#list[@]} > 500)); then
        list=("${list[@]:250}")
    fi
done
echo "${#table[@]} ${#list[@]} ${list[*]:0:10}"
text=""
for ((i = 0; i < 3000; i++)); do
    text+="$i,"
done
echo "${#text} $(echo "${text//1/one}" | cksum)"
for ((i = 0; i < 50; i++)); do
    (echo "subshell $i ${table[$i]:-none}")
done
