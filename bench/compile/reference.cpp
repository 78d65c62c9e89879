// What every ratio is measured against: a program that uses two headers of the standard library.
#include <filesystem>
#include <vector>

int main() {
    std::vector<std::filesystem::path> paths(1);
    return static_cast<int>(paths.size()) - 1;
}
