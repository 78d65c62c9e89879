// A mesh axis has one extent.
#include <fathom/parallel/mesh.hpp>

struct pod : fathom::mesh<fathom::dp<1>, fathom::tp<1>> {};
#ifdef REFUSED
// refused: fathom: a mesh axis is given twice. fix: write each of dp, tp, pp, ep and cp at most once in mesh<>.
struct twice : fathom::mesh<fathom::tp<1>, fathom::tp<1>> {};
#endif

int main() {}
