// The engines of parity tests over fp32.
#include "reference_engines.hpp"

template std::unique_ptr<fathom::parity_test::running_model<float>> fathom::parity_test::run_model(
    const models::model_config&, const setup&);
