// Runs the test cases of one executable: as doctest does for people, and with --reporters=tap in the form that Meson
// counts.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>

namespace {

/// One line a test case ("ok 3 - name [0.012 s]"); what the console would say about a failure follows as comments.
class tap : public doctest::ConsoleReporter {
  public:
    explicit tap(const doctest::ContextOptions& options) : ConsoleReporter{options, said_} {}

    void report_query(const doctest::QueryData&) override {}
    void test_run_start() override {}
    void test_case_start(const doctest::TestCaseData& test) override {
        ConsoleReporter::test_case_start(test);
        name_ = test.m_name;
        start_ = std::chrono::steady_clock::now();
    }
    void test_case_end(const doctest::CurrentTestCaseStats& seen) override {
        const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start_;
        char seconds[32];
        std::snprintf(seconds, sizeof seconds, " [%.3f s]", time.count());
        print(seen.testCaseSuccess ? "ok " : "not ok ", name_, seconds);
        if (!seen.testCaseSuccess) {
            std::istringstream lines{said_.str()};
            for (std::string line; std::getline(lines, line);) std::printf("# %s\n", line.c_str());
        }
        said_.str("");
        std::fflush(stdout);
    }
    void test_case_skipped(const doctest::TestCaseData& test) override { print("ok ", test.m_name, " # SKIP"); }
    void test_run_end(const doctest::TestRunStats&) override { std::printf("1..%d\n", count_); }

  private:
    void print(const char* verdict, std::string name, const char* ending) {
        for (char& letter : name)
            if (letter == '#' || letter == '\n') letter = ' ';
        std::printf("%s%d - %s%s\n", verdict, ++count_, name.c_str(), ending);
    }

    std::ostringstream said_;
    std::string name_;
    std::chrono::steady_clock::time_point start_;
    int count_ = 0;
};

DOCTEST_REGISTER_REPORTER("tap", 0, tap);

}  // namespace

int main(int argc, char** argv) {
    doctest::Context context;
    if (!std::getenv("FATHOM_TEST_ALL")) context.addFilter("test-suite-exclude", "all");  // what takes long
    context.applyCommandLine(argc, argv);
    return context.run();
}
