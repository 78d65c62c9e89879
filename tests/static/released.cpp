// Parameters of the released models, summed over the layers' own tensors, against the published counts.
#include <doctest/doctest.h>

#include <fathom/models/released.hpp>
#include <fathom/recipe/plan.hpp>

namespace {

using namespace fathom;

// As published: router biases are in, the module of multi-token prediction is not.
static_assert(parameters_of<released::llm_7b>() == 6'910'365'696);
static_assert(parameters_of<released::llm_67b>() == 67'425'001'472);
static_assert(parameters_of<released::moe_16b>() == 16'375'728'128);
static_assert(parameters_of<released::v2_lite>() == 15'706'484'224);
static_assert(parameters_of<released::v2>() == 235'741'434'880);
static_assert(parameters_of<released::v3>() == 671'026'419'200);

// What one token uses. Sources differ in whether they count embedding and head.
constexpr bool with_embedding = true, with_head = true, without_embedding = false, without_head = false;
static_assert(activated_parameters_of<released::llm_7b>() == 6'910'365'696);
static_assert(activated_parameters_of<released::llm_67b>() == 67'425'001'472);
static_assert(activated_parameters_of<released::moe_16b>(with_embedding, with_head) == 2'828'650'496);
static_assert(activated_parameters_of<released::v2_lite>(without_embedding, with_head) == 2'451'435'008);
static_assert(activated_parameters_of<released::v2>(with_embedding, with_head) == 21'375'800'320);
static_assert(activated_parameters_of<released::v2>(without_embedding, without_head) == 20'327'224'320);
static_assert(activated_parameters_of<released::v3>(without_embedding, with_head) == 36'625'618'432);
static_assert(activated_parameters_of<released::v3>(with_embedding, with_head) == 37'552'297'472);

// V3's parts.
template <class Layer> consteval integer size_of(const Layer& layer) {
    integer n = 0;
    typename Layer::template parameters<float> none{};
    layer.each_parameter(none, [&](auto&, const nn::storage& facts, auto...) { n += facts.size(); });
    return n;
}
constexpr auto v3 = released::v3::family::transformer<float>(released::v3::config());
constexpr auto& v3_experts = std::get<1>(v3.segments).layer;
constexpr integer router_bias = 256;
static_assert(size_of(v3_experts.self_attn()) == 187'107'328);
static_assert(size_of(v3_experts) + router_bias == 11'507'286'272);
static_assert(size_of(v3.mtp()) + router_bias == 11'610'068'224);

// The plan of the largest model stays within the compilers' default limits.
struct v3_recipe : training<released::v3, mesh<>, precision<weights<bf16>>, sequence_length<4'096>, micro_batch<1>> {};
static_assert(bytes_per_rank<v3_recipe> > 16 * parameters_of<released::v3>());

TEST_CASE("released models have their published numbers of parameters") {
    CHECK(parameters_of<released::v3>() == 671'026'419'200);
}

}  // namespace
