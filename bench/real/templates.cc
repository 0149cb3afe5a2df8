// What takes a C++ compiler its time: the standard library's templates.
#include <algorithm>
#include <functional>
#include <map>
#include <regex>
#include <string>
#include <unordered_map>
#include <vector>

using table = std::map<std::string, std::vector<std::pair<int, std::function<int(int)>>>>;

int templates(const std::string &text) {
    table entries;
    std::unordered_map<std::string, int> counts;
    std::regex word("[a-z]+(-[a-z]+)*");
    for (auto at = std::sregex_iterator(text.begin(), text.end(), word); at != std::sregex_iterator(); ++at) {
        counts[at->str()]++;
        entries[at->str()].emplace_back(1, [](int x) { return x + 1; });
    }
    return static_cast<int>(entries.size() + counts.size());
}
