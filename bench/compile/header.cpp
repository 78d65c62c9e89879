// What including the library costs before anything of it is used.
#include <fathom/fathom.hpp>

int main() {}
