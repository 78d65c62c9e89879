// How ranks that share sequences see each other's keys and values, chosen as a number so that it is compiled once.
#pragma once

#include <cstdint>

namespace fathom::nn {

/// `all_gather`: every rank gathers the keys and values of whole sequences (of latent attention: the latents and rotary
/// keys that they are made of, much less to send), attends once and scatters their gradients back; memory grows with
/// the whole sequence. `ring`: every rank's keys and values travel round, one rank's at a time, and results merge as
/// they come (Liu et al., "Ring attention", 2023); memory grows with a rank's own part, and what is sent hides behind
/// what is computed.
enum class context_exchange : std::uint8_t { all_gather, ring };

}  // namespace fathom::nn
