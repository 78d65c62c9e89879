// The engines of parity tests over bf16.
#include "reference_engines.hpp"

template std::unique_ptr<fathom::parity_test::running_model<fathom::bf16>> fathom::parity_test::run_model(
    const models::model_config&, const setup&);
