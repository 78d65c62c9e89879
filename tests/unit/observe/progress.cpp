#include "fathom/observe/progress.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

using namespace fathom::observe;

TEST_CASE("duration: as people read it") {
    CHECK(duration_text(0.4) == "0:00");
    CHECK(duration_text(59.6) == "1:00");
    CHECK(duration_text(754) == "12:34");
    CHECK(duration_text(3723) == "1:02:03");
    CHECK(duration_text(-1) == "?");
    CHECK(duration_text(1e300 * 1e300) == "?");
}

TEST_CASE("progress: the bar takes what room there is, then spaces go, then the end") {
    CHECK(progress_line(3, 12, "loss 2.5  norm 1.0", 200) ==
          "3/12  [##########------------------------------]  loss 2.5  norm 1.0");
    CHECK(progress_line(6, 12, "loss 2.5  norm 1.0", 38) == "6/12  [#####-----]  loss 2.5  norm 1.0");
    CHECK(progress_line(6, 12, "loss 2.5  norm 1.0", 37) == "6/12  loss 2.5  norm 1.0");
    CHECK(progress_line(6, 12, "loss 2.5  norm 1.0", 23) == "6/12 loss 2.5  norm 1.0");
    CHECK(progress_line(6, 12, "loss 2.5  norm 1.0", 22) == "6/12 loss 2.5 norm 1.0");
    CHECK(progress_line(6, 12, "loss 2.5  norm 1.0", 10) == "6/12 loss ");
    CHECK(progress_line(0, 0, "", 30) == "0/0  [#####################]  ");
    CHECK(progress_line(99, 12, "", 30).find('-') == std::string::npos);
}

TEST_CASE("progress: in a file the first and the last line always, others when due, messages between") {
    const auto run = [](double seconds) {
        std::FILE* file = std::tmpfile();
        REQUIRE(file != nullptr);
        {
            progress shown{file, 10, 13, seconds};
            shown.show(11, "a");
            shown.show(12, "b");
            shown.print("message");
            shown.show(13, "c");
        }
        std::rewind(file);
        std::string all;
        for (int c; (c = std::fgetc(file)) != EOF;) all += static_cast<char>(c);
        std::fclose(file);
        return all;
    };
    const std::string rare = run(1e6), often = run(0);
    CHECK(rare.find("11/13  [") == 0);
    CHECK(rare.find("12/13") == std::string::npos);
    CHECK(rare.find("]  a  0:00 left\nmessage\n13/13  [") != std::string::npos);
    CHECK(rare.ends_with("]  c\n"));
    CHECK(often.find("\n12/13  [") != std::string::npos);
}
