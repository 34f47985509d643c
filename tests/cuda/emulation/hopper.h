#pragma once

// What sm_90a adds, emulated: barriers in shared memory that count arrivals and bytes, the copy
// engine (TMA), named barriers, the registers of warps, and asynchronous products of a warpgroup
// (wgmma), as the PTX ISA describes them. cuda/device/hopper.cuh and wgmma.cuh call these.
//
// As late, and as early, as the hardware might do it: a box of a copy is NaN from the copy's start
// on and holds the data once every thread waits for something; accumulators are NaN from the
// product's issue to the wait for its group. Found and reported: operands in shared memory that
// change between issue and wait, accumulators written meanwhile, products without a fence ahead or
// never waited for, warps of a group that differ in their products, barriers that were never
// initialised, get more arrivals than they take, or at the end have a part of what they wait for.
//
// Of clusters: another block's barrier that no round of the cluster's barrier has followed since it
// was initialised, and a block that waits neither for an arrival from another one nor, at the
// cluster's barrier, for the thread that makes it. Whatever the schedule is.

#include <cstdint>
#include <source_location>

#include "block_runner.h"

namespace headrace::emulation {

/// Boxes of `box_rows` rows x 64 columns (128 bytes, swizzled) of a matrix of 16-bit elements;
/// zeros beyond its edges. Or, with `tile_rows`, of tiles of so many rows, stride_bytes apart, each
/// `cols` times its rows of 128 bytes. Or, with `run_bytes`, boxes of so many bytes of `box_rows`
/// rows of `cols` bytes, not swizzled.
struct TensorMap {
  const char* data;
  int64_t rows, cols, stride_bytes;
  int box_rows;
  int tile_rows = 0;
  int run_bytes = 0;
};

/// Throws EmulationError if the driver would refuse it.
void check_tensor_map(const TensorMap& map);

/// As descriptors have it. `pointer` is in the block's dynamic shared memory.
uint32_t shared_address_of(const void* pointer);

void barrier_init(uint64_t* barrier, uint32_t arrivals, const std::source_location& site);
/// Announces `bytes`, then arrives.
void barrier_arrive(uint64_t* barrier, uint32_t bytes, const std::source_location& site);
/// At the barrier of block `rank` of the cluster that lies where `barrier` does in this one.
void barrier_arrive_at(uint64_t* barrier, unsigned rank, uint32_t bytes,
                       const std::source_location& site);
void barrier_wait(uint64_t* barrier, uint32_t parity, const std::source_location& site);

/// To the same place in each block of the cluster whose bit is set; the bytes count at the same
/// barrier of each.
void copy_box(void* shared, const TensorMap& map, int32_t column, int32_t row, uint64_t* barrier,
              uint32_t blocks, const std::source_location& site);
void copy_unit(void* shared, const TensorMap& map, int32_t tile, int32_t unit, uint64_t* barrier,
               uint32_t blocks, const std::source_location& site);
inline uint32_t own_block() { return 1u << cluster_rank(); }
/// Words of 4 bytes from `word` on, of rows from `row` on.
void copy_run(void* shared, const TensorMap& map, int32_t word, int32_t row, uint64_t* barrier,
              const std::source_location& site);

/// What lies in block `rank` of the cluster where `shared` does in this one.
void load_from_block(void* to, const void* shared, size_t bytes, unsigned rank,
                     const std::source_location& site);

/// One of 15; `wait`: until all `threads` have arrived.
void named_barrier(int number, int threads, bool wait, const std::source_location& site);

void change_registers(int registers, bool more, const std::source_location& site);

/// c [64, n] = (keep ? c : 0) + a [64, 16] . b [n, 16]^T of the calling warpgroup, or of 32 e4m3.
struct Product {
  float* c;  ///< the lane's n / 2 accumulators
  int n;
  const uint32_t* a_registers;  ///< 4, or null: `a` describes it
  uint64_t a, b;                ///< descriptors
  bool b_is_n_major;
  bool keep;
  float (*value)(uint16_t);  ///< of an element; null: it is two e4m3
  bool a_stays = false;      ///< a_registers are there until the wait, and don't change
};

void issue_product(const Product& product, const std::source_location& site);
void fence_products(const std::source_location& site);
void commit_products(const std::source_location& site);
void wait_products(int groups_left, const std::source_location& site);

}  // namespace headrace::emulation
