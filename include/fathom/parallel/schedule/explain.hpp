// A proof that failed, as a sentence for people.
#pragma once

#include <fathom/core/error.hpp>
#include <fathom/parallel/schedule/proof.hpp>

namespace fathom::schedule {

/// What a problem is, as the middle of a sentence.
constexpr const char* name_of(problem p) {
    switch (p) {
        case problem::none:
            return "nothing is wrong";
        case problem::sizes:
            return "sizes that make no sense together, or more ranks than a proof has room for";
        case problem::foreign:
            return "an action or transfer of a rank, chunk or micro-batch that is not there";
        case problem::repeated:
            return "work that is done, or a tensor that is sent, a second time";
        case problem::lost:
            return "a forward, input's or weights' gradient that nobody does";
        case problem::early:
            return "an action or a send before what it needs is on the rank";
        case problem::wrong_peer:
            return "a transfer with a rank that does not hold the neighbouring stage";
        case problem::unmatched:
            return "a transfer whose other side is missing";
        case problem::crossed:
            return "a transfer that the two ranks have in different places of their order";
        case problem::deadlock:
            return "a transfer that waits for ever";
    }
    return "";
}

/// "rank 1, action 4: found ... of micro-batch 2, chunk 0".
inline std::string explain(const proof& p) {
    std::string text;
    if (p.rank >= 0) text += text_of("rank ", p.rank);
    if (p.action >= 0) text += text_of(", action ", p.action);
    text += text_of(text.empty() ? "" : ": ", "found ", name_of(p.found));
    if (p.micro_batch >= 0) text += text_of(", of micro-batch ", p.micro_batch, ", chunk ", p.chunk);
    return text;
}

}  // namespace fathom::schedule
