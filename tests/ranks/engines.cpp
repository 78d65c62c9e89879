#define FATHOM_TESTS_ENGINES
#include "engines.hpp"

namespace fathom::train {
template class engine<test::latent_fp64>;
template class engine<test::split_latent_fp64>;
template class pipeline<test::split_latent_fp64>;
}  // namespace fathom::train
