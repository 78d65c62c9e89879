// Every collective on thread ranks against a plain loop: all formats, odd and empty sizes, the same bits on all ranks.
#include <doctest/doctest.h>

#include <atomic>
#include <cstring>
#include <fathom/comm.hpp>
#include <limits>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

namespace fathom {
namespace {

const std::vector<integer> rank_counts{1, 2, 3, 4, 8};

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

TEST_CASE_TEMPLATE("comm: all_reduce and reduce_scatter are the plain loop's bits", T, double, float, bf16,
                   std::int64_t, std::int32_t) {
    for (const integer n : rank_counts) {
        comm::threads::run(n, [&](comm::threads::communicator& ranks) {
            for (const integer count : {0, 1, 5, 63, 64, 65, 1'000, 4'097}) {
                for (const comm::reduction how : {comm::reduction::sum, comm::reduction::max}) {
                    std::vector<T> expected(static_cast<std::size_t>(n * count));
                    for (integer at = 0; at < n * count; ++at)
                        expected[static_cast<std::size_t>(at)] = reduced<T>(n, at, how);

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
        });
    }
}

TEST_CASE_TEMPLATE("comm: all_gather and broadcast bring every rank's numbers", T, double, float, bf16, std::int64_t,
                   std::int32_t, std::byte) {
    for (const integer n : rank_counts) {
        comm::threads::run(n, [&](comm::threads::communicator& ranks) {
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
        });
    }
}

/// Elements that a rank sends to another: some pairs have none.
integer length(integer from, integer to) { return (from * 5 + to * 3) % 4 * 7; }

TEST_CASE_TEMPLATE("comm: all_to_all with lengths known at run time, none for some", T, double, float, bf16,
                   std::int64_t, std::int32_t, std::byte) {
    for (const integer n : rank_counts) {
        comm::threads::run(n, [&](comm::threads::communicator& ranks) {
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
        });
    }
}

TEST_CASE("comm: an exchange of a ring in both directions, several messages a pair, and with oneself") {
    for (const integer n : {3, 4, 8}) {
        comm::threads::run(n, [&](comm::threads::communicator& ranks) {
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
        });
    }
    comm::threads::run(1, [](comm::threads::communicator& ranks) {
        const float out = 3;
        float in = 0;
        const std::vector<comm::message> messages{comm::receive_from(0, &in, 1), comm::send_to(0, &out, 1)};
        ranks.run(comm::exchange(messages));
        CHECK(in == 3);
    });
}

TEST_CASE("comm: groupings of messages may differ between the two sides") {
    comm::threads::run(2, [](comm::threads::communicator& ranks) {
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
            std::vector<comm::threads::handle> under_way;
            for (const comm::message& each : messages) under_way.push_back(ranks.start(comm::exchange({&each, 1})));
            for (std::size_t n = under_way.size(); n-- > 0;) under_way[n].wait();
        }
        for (int n = 0; n < 40; ++n) CHECK(in[n] == 100 * peer + n);
    });
}

TEST_CASE("comm: handles are waited for in any order, of two communicators too, and more than the ring holds") {
    for (const integer n : {2, 3, 4}) {
        comm::threads::run(n, [&](comm::threads::communicator& ranks) {
            comm::threads::communicator other = ranks.split(0, -ranks.rank(), "reversed");
            CHECK(other.rank() == n - 1 - ranks.rank());
            constexpr int many = 100;
            std::vector<std::int64_t> a(many, ranks.rank() + 1), b(many, 1);
            std::vector<comm::threads::handle> first, second;
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
        });
    }
}

TEST_CASE("comm: split makes a mesh's axes") {
    comm::threads::run(8, [](comm::threads::communicator& ranks) {
        const integer me = ranks.rank();
        comm::threads::communicator rows = ranks.split(me / 4, me, "rows"),
                                    columns = ranks.split(me % 4, me, "columns");
        CHECK(rows.size() == 4);
        CHECK(rows.rank() == me % 4);
        CHECK(columns.size() == 2);
        CHECK(columns.rank() == me / 4);
        CHECK(std::string{columns.name()} == "columns");
        std::int32_t sum = static_cast<std::int32_t>(me), of_pair = sum;
        rows.run(comm::all_reduce(&sum, 1));
        columns.run(comm::all_reduce(&of_pair, 1));
        CHECK(sum == (me < 4 ? 6 : 22));
        CHECK(of_pair == 2 * (me % 4) + 4);
        comm::threads::communicator pair = rows.split(me % 4 / 2, 0, "pairs");
        CHECK(pair.size() == 2);
        pair.run(comm::barrier());
    });
}

TEST_CASE("comm: a barrier is passed by nobody before all came") {
    std::atomic<int> came{0};
    comm::threads::run(4, [&](comm::threads::communicator& ranks) {
        for (int round = 1; round <= 200; ++round) {
            ++came;
            ranks.run(comm::barrier());
            CHECK(came >= 4 * round);
            ranks.run(comm::barrier());
        }
    });
}

TEST_CASE("comm: a maximum over a NaN is a NaN, wherever it stands") {
    for (const integer who : {0, 1, 2}) {
        comm::threads::run(3, [&](comm::threads::communicator& ranks) {
            float x = ranks.rank() == who ? std::numeric_limits<float>::quiet_NaN() : 1.0f;
            ranks.run(comm::all_reduce(&x, 1, comm::reduction::max));
            CHECK(x != x);
        });
    }
}

}  // namespace
}  // namespace fathom
