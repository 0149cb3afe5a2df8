// A translation unit that makes a compiler work: many headers, many instantiations.
#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <functional>
#include <iostream>
#include <list>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <variant>
#include <vector>

template <int N> struct chain {
    static std::map<std::string, std::vector<std::array<int, N + 1>>> table() {
        std::map<std::string, std::vector<std::array<int, N + 1>>> result;
        result["level" + std::to_string(N)].emplace_back();
        for (auto &entry : chain<N - 1>::table()) {
            result[entry.first].emplace_back();
        }
        return result;
    }
};
template <> struct chain<0> {
    static std::map<std::string, std::vector<std::array<int, 1>>> table() {
        return {};
    }
};

template <std::size_t... I> int sum(std::index_sequence<I...>) {
    return (0 + ... + int(std::tuple_size<std::array<int, I + 1>>::value));
}

std::size_t work(const std::string &text) {
    std::regex words("([a-z]+)-([0-9]+)");
    std::unordered_map<std::string, std::variant<int, std::string>> found;
    for (std::sregex_iterator it(text.begin(), text.end(), words), end; it != end; ++it) {
        found[(*it)[1]] = (*it)[2].str();
    }
    return found.size() + chain<8>::table().size() + std::size_t(sum(std::make_index_sequence<60>()));
}
