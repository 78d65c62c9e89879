// The door to attention of new tokens over cached ones, and to the products by head that a latent cache asks for.
#pragma once

#include <fathom/ops/decode_attention/attention_cache.hpp>
#include <fathom/ops/decode_attention/heads_product.hpp>
#include <fathom/ops/decode_attention/host.hpp>
