// The engines that many of these tests run, compiled once.
#pragma once

#include <fathom/models/families.hpp>
#include <fathom/train/engine.hpp>

namespace fathom::test {

template <class Family, class T, bool Split>
using transformer_of_family = decltype(Family::template transformer<T, Split>(models::model_config{}));
using latent_fp64 = transformer_of_family<models::latent_family, double, false>;
using split_latent_fp64 = transformer_of_family<models::latent_family, double, true>;

}  // namespace fathom::test

#ifndef FATHOM_TESTS_ENGINES
namespace fathom::train {
extern template class engine<test::latent_fp64>;
extern template class engine<test::split_latent_fp64>;
extern template class pipeline<test::split_latent_fp64>;
}  // namespace fathom::train
#endif
