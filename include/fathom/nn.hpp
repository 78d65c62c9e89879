// The front door of the room of layers.
#pragma once

#include <fathom/nn/block.hpp>                            // IWYU pragma: export
#include <fathom/nn/context_exchange.hpp>                 // IWYU pragma: export
#include <fathom/nn/context_grouped_query_attention.hpp>  // IWYU pragma: export
#include <fathom/nn/context_latent_attention.hpp>         // IWYU pragma: export
#include <fathom/nn/dispatched_experts.hpp>               // IWYU pragma: export
#include <fathom/nn/experts.hpp>                          // IWYU pragma: export
#include <fathom/nn/feed_forward.hpp>                     // IWYU pragma: export
#include <fathom/nn/grouped_query_attention.hpp>          // IWYU pragma: export
#include <fathom/nn/language_head.hpp>                    // IWYU pragma: export
#include <fathom/nn/latent_attention.hpp>                 // IWYU pragma: export
#include <fathom/nn/multi_token_prediction.hpp>           // IWYU pragma: export
#include <fathom/nn/token_embedding.hpp>                  // IWYU pragma: export
