// Every collective against a plain loop, for ranks of any kind.
#pragma once

#include <doctest/doctest.h>

#include <cstring>
#include <fathom/comm.hpp>
#include <numeric>
#include <type_traits>
#include <vector>

namespace fathom::test {

/// A number of any format that depends on rank and place, with a full mantissa, so that orders of summation differ.
template <class T> T number(integer rank, integer at) {
    const auto word = philox({static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(at), 0, 0}, {7, 7})[0];
    if constexpr (std::is_same_v<T, bf16>)
        return bf16{static_cast<float>(word) * 0x1p-31f - 1.0f};
    else if constexpr (std::is_same_v<T, std::byte>)
        return static_cast<std::byte>(word);
    else if constexpr (std::is_integral_v<T>)
        return static_cast<T>(static_cast<std::int32_t>(word) / 16);
    else
        return static_cast<T>(word) * static_cast<T>(0x1p-31) - T{1};
}

template <class T> std::vector<T> numbers(integer rank, integer count) {
    std::vector<T> made(static_cast<std::size_t>(count));
    for (integer at = 0; at < count; ++at) made[static_cast<std::size_t>(at)] = number<T>(rank, at);
    return made;
}

template <class T> bool same(const T* a, const T* b, integer count) {
    return count == 0 || std::memcmp(a, b, static_cast<std::size_t>(count) * sizeof(T)) == 0;
}

/// The plain loop: ranks in order, bf16 in float.
template <class T> T reduced(integer ranks, integer at, comm::reduction how) {
    using sum = std::conditional_t<std::is_same_v<T, bf16>, float, T>;
    sum total = static_cast<sum>(number<T>(0, at));
    for (integer rank = 1; rank < ranks; ++rank) {
        const sum next = static_cast<sum>(number<T>(rank, at));
        total = how == comm::reduction::sum ? static_cast<sum>(total + next) : (next > total ? next : total);
    }
    return T(total);
}

/// Elements that a rank sends to another: some pairs have none.
inline integer length(integer from, integer to) { return (from * 5 + to * 3) % 4 * 7; }

/// All reductions of a format.
template <class T, class Ranks> void reductions(Ranks& ranks) {
    const integer n = ranks.size();
    for (const integer count : {0, 1, 5, 63, 64, 65, 1'000, 4'097}) {
        for (const comm::reduction how : {comm::reduction::sum, comm::reduction::max}) {
            std::vector<T> expected(static_cast<std::size_t>(n * count));
            for (integer at = 0; at < n * count; ++at) expected[static_cast<std::size_t>(at)] = reduced<T>(n, at, how);

            std::vector<T> data = numbers<T>(ranks.rank(), count);
            ranks.run(comm::all_reduce(data.data(), count, how));
            CHECK(same(data.data(), expected.data(), count));

            const std::vector<T> whole = numbers<T>(ranks.rank(), n * count);
            std::vector<T> part(static_cast<std::size_t>(count)), in_place = whole;
            ranks.run(comm::reduce_scatter(whole.data(), part.data(), count, how));
            CHECK(same(part.data(), expected.data() + ranks.rank() * count, count));
            T* row = in_place.data() + ranks.rank() * count;
            ranks.run(comm::reduce_scatter(in_place.data(), row, count, how));
            CHECK(same(row, expected.data() + ranks.rank() * count, count));
        }
    }
}

/// all_gather and broadcast.
template <class T, class Ranks> void gathers(Ranks& ranks) {
    const integer n = ranks.size();
    for (const integer count : {0, 1, 7, 1'001}) {
        const std::vector<T> part = numbers<T>(ranks.rank(), count);
        std::vector<T> whole(static_cast<std::size_t>(n * count)), in_place = whole;
        ranks.run(comm::all_gather(part.data(), whole.data(), count));
        T* row = in_place.data() + ranks.rank() * count;
        if (count > 0) std::memcpy(row, part.data(), part.size() * sizeof(T));
        ranks.run(comm::all_gather(row, in_place.data(), count));
        CHECK(same(whole.data(), in_place.data(), n * count));
        for (integer rank = 0; rank < n; ++rank) {
            const std::vector<T> theirs = numbers<T>(rank, count);
            CHECK(same(whole.data() + rank * count, theirs.data(), count));
            std::vector<T> data = part;
            ranks.run(comm::broadcast(data.data(), count, rank));
            CHECK(same(data.data(), theirs.data(), count));
        }
    }
}

/// all_to_all; lengths travel first.
template <class T, class Ranks> void lengths(Ranks& ranks) {
    const integer n = ranks.size();
    const auto size = static_cast<std::size_t>(n);
    std::vector<integer> send(size), send_at(size), receive(size), receive_at(size);
    integer sent = 0, received = 0;
    for (integer peer = 0; peer < n; ++peer) {
        const auto entry = static_cast<std::size_t>(peer);
        send[entry] = length(ranks.rank(), peer);
        send_at[entry] = sent;
        sent += send[entry] + 1;  // a gap that is not sent
    }
    // Lengths travel first, as those of experts do.
    ranks.run(comm::all_to_all(send.data(), receive.data(), 1));
    for (integer peer = n; peer-- > 0;) {  // parts may lie in any order
        receive_at[static_cast<std::size_t>(peer)] = received;
        received += receive[static_cast<std::size_t>(peer)];
    }
    const std::vector<T> out = numbers<T>(ranks.rank(), sent);
    std::vector<T> in(static_cast<std::size_t>(received));
    ranks.run(comm::all_to_all(out.data(), send, send_at, in.data(), receive, receive_at));
    for (integer peer = 0; peer < n; ++peer) {
        const auto entry = static_cast<std::size_t>(peer);
        CHECK(receive[entry] == length(peer, ranks.rank()));
        integer at = 0;
        for (integer before = 0; before < ranks.rank(); ++before) at += length(peer, before) + 1;
        const std::vector<T> theirs = numbers<T>(peer, at + receive[entry]);
        CHECK(same(in.data() + receive_at[entry], theirs.data() + at, receive[entry]));
    }
}

/// Both directions of a ring of three ranks or more.
template <class Ranks> void ring(Ranks& ranks) {
    const integer n = ranks.size();
    const integer me = ranks.rank(), next = (me + 1) % n, before = (me + n - 1) % n;
    for (const integer count : {0, 1, 33}) {
        const std::vector<float> first = numbers<float>(me, count), second = numbers<float>(me + 100, count);
        std::vector<float> a(first.size()), b(first.size()), c(first.size());
        const std::int64_t self = me * 10;
        std::int64_t own = -1;
        // Sends stand before receives on every rank: blocking ones would wait for each other.
        const std::vector<comm::message> messages{
            comm::send_to(next, first.data(), count),    comm::send_to(next, second.data(), count),
            comm::send_to(before, second.data(), count), comm::send_to(me, &self, 1),
            comm::receive_from(before, a.data(), count), comm::receive_from(before, b.data(), count),
            comm::receive_from(next, c.data(), count),   comm::receive_from(me, &own, 1),
        };
        ranks.run(comm::exchange(messages));
        CHECK(same(a.data(), numbers<float>(before, count).data(), count));
        CHECK(same(b.data(), numbers<float>(before + 100, count).data(), count));
        CHECK(same(c.data(), numbers<float>(next + 100, count).data(), count));
        CHECK(own == self);
    }
}

/// Two ranks that group the same messages differently.
template <class Ranks> void groupings(Ranks& ranks) {
    using handle = comm::handle_of<Ranks>;
    const integer peer = 1 - ranks.rank();
    std::int32_t in[40], out[40];
    std::iota(out, out + 40, 100 * static_cast<std::int32_t>(ranks.rank()));
    std::vector<comm::message> messages;
    for (int n = 0; n < 40; ++n) {  // more than a lane holds
        messages.push_back(comm::send_to(peer, out + n, 1));
        messages.push_back(comm::receive_from(peer, in + n, 1));
    }
    if (ranks.rank() == 0) {
        ranks.run(comm::exchange(messages));
    } else {
        std::vector<handle> under_way;
        for (const comm::message& each : messages) under_way.push_back(ranks.start(comm::exchange({&each, 1})));
        for (std::size_t n = under_way.size(); n-- > 0;) under_way[n].wait();
    }
    for (int n = 0; n < 40; ++n) CHECK(in[n] == 100 * peer + n);
}

/// Two communicators, waited for in different orders.
template <class Ranks> void orders(Ranks& ranks) {
    const integer n = ranks.size();
    using handle = comm::handle_of<Ranks>;
    Ranks other = ranks.split(0, -ranks.rank(), "reversed");
    CHECK(other.rank() == n - 1 - ranks.rank());
    constexpr int many = 100;
    std::vector<std::int64_t> a(many, ranks.rank() + 1), b(many, 1);
    std::vector<handle> first, second;
    for (std::size_t i = 0; i < many; ++i) {
        first.push_back(ranks.start(comm::all_reduce(&a[i], 1)));
        second.push_back(other.start(comm::all_reduce(&b[i], 1)));
    }
    if (ranks.rank() % 2 == 0) {
        for (std::size_t i = many; i-- > 0;) first[i].wait();
        for (auto& each : second) each.wait();
    } else {
        for (auto& each : second) each.wait();
        while (!first[many - 1].done()) {
        }
        for (auto& each : first) each.wait();
    }
    for (std::size_t i = 0; i < many; ++i) {
        CHECK(a[i] == n * (n + 1) / 2);
        CHECK(b[i] == n);
    }
}

}  // namespace fathom::test
