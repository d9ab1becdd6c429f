/*
 * pagewire_experimental.hpp: experimental applications of Pagewire, from C++17: global memory, a sort, streams and transactions. A thin layer over
 * pagewire_experimental.h, whose comments say more. Names and promises may change with any release.
 *
 * Each object is made from a pw::node, and ends before it. Refusals, bytes and bounds are as in pagewire.hpp.
 */
#ifndef PAGEWIRE_EXPERIMENTAL_HPP
#define PAGEWIRE_EXPERIMENTAL_HPP

#include <pagewire/experimental/global_memory.hpp>
#include <pagewire/experimental/sort.hpp>
#include <pagewire/experimental/stream.hpp>
#include <pagewire/experimental/transactions.hpp>

#endif /* PAGEWIRE_EXPERIMENTAL_HPP */
