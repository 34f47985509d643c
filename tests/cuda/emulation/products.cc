// wgmma: see hopper.h. A warp's 32 lanes meet for each step; the warps of a group need not.

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "codes8.h"
#include "hopper_state.h"
#include "short_sums.h"

namespace headrace::emulation {
namespace {

constexpr int kRows = 16, kDepth = 16;

struct Descriptor {
  uint32_t start, leading, stride;
  int swizzle;  // bits, see swizzled()
};

/// Null, or what is wrong.
const char* decode(uint64_t bits, Descriptor* out) {
  const auto field = [&](int shift) { return static_cast<uint32_t>(bits >> shift & 0x3fff) << 4; };
  constexpr int kSwizzles[] = {0, 3, 2, 1};
  *out = {field(0), field(16), field(32), kSwizzles[bits >> 62]};
  if ((bits >> 49 & 7) != 0) return "a matrix descriptor with a base offset isn't emulated";
  if (out->swizzle > 0 && (out->start >> 7 & ((1u << out->swizzle) - 1)) != 0) {
    return "a swizzled matrix that starts within its pattern";
  }
  return nullptr;
}

/// Of element (row, k) of a matrix [rows, k]: canonical layouts of the PTX ISA. `row_major`: rows
/// (m or n) are contiguous, not k.
uint32_t address_of(const Descriptor& d, bool row_major, uint32_t row, uint32_t k) {
  const uint32_t chunks = 1u << d.swizzle, line = 16 * chunks;
  uint32_t address = d.start;
  if (row_major) {
    const uint32_t span = 8 * chunks;
    address += row % span * 2 + k % 8 * line;
    address += d.swizzle == 0 ? row / span * d.stride + k / 8 * d.leading
                              : row / span * d.leading + k / 8 * d.stride;
  } else {
    address += row % 8 * line + row / 8 * d.stride;
    address += d.swizzle == 0 ? k / 8 * d.leading + k % 8 * 2 : k * 2;
  }
  return swizzled(address, d.swizzle);
}

/// Rows [first, first + rows) of a matrix, as [row][k]; null, or what is wrong. 8 elements lie side
/// by side, of a row or of one k.
const char* read_matrix(uint64_t descriptor, bool row_major, int first, int rows, uint16_t* out) {
  Descriptor d;
  if (const char* error = decode(descriptor, &d)) return error;
  const int row_step = row_major ? 8 : 1, k_step = row_major ? 1 : 8;
  for (int row = 0; row < rows; row += row_step) {
    for (int k = 0; k < kDepth; k += k_step) {
      const uint32_t address =
          address_of(d, row_major, static_cast<uint32_t>(first + row), static_cast<uint32_t>(k));
      if (!in_shared_memory(address, 16)) return "a matrix descriptor beyond shared memory";
      uint16_t eight[8];
      std::memcpy(eight, shared_pointer(address), sizeof eight);
      for (int i = 0; i < 8; ++i) {
        out[row_major ? (row + i) * kDepth + k : row * kDepth + k + i] = eight[i];
      }
    }
  }
  return nullptr;
}

struct Call {
  unsigned warp;
  int groups_left;
  Product product;
};

bool same_product(const Product& x, const Product& y) {
  return x.n == y.n && (x.a_registers == nullptr) == (y.a_registers == nullptr) &&
         (x.a_registers != nullptr || x.a == y.a) && x.b == y.b &&
         x.b_is_n_major == y.b_is_n_major && x.keep == y.keep && x.value == y.value &&
         x.a_stays == y.a_stays;
}

struct Lanes {
  const Call* at[32];
  WarpProducts* warp;
};

const char* gather(void* const* payloads, Lanes* out) {
  for (int lane = 0; lane < 32; ++lane) {
    if (payloads[lane] == nullptr) return "a product's operation without all lanes";
    out->at[lane] = static_cast<const Call*>(payloads[lane]);
  }
  out->warp = &HopperState::current().warps[out->at[0]->warp];
  return nullptr;
}

/// Place of accumulator i of a lane in [16][n].
size_t sum_place(int lane, int i, int n) {
  const int row = lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
  return static_cast<size_t>(row * n + column);
}

const char* hold_sums(const Lanes& lanes, size_t* id) {
  const Product& product = lanes.at[0]->product;
  constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();
  for (HeldSums& held : lanes.warp->held) {
    if (held.lanes[0] != product.c) continue;
    if (held.n != product.n) return "products of two shapes on the same accumulators";
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < held.n / 2; ++i) {
        const float now = lanes.at[lane]->product.c[i];
        if (std::bit_cast<uint32_t>(now) != std::bit_cast<uint32_t>(kPoison)) {
          return "accumulators were written while a product was under way";
        }
      }
    }
    ++held.products;
    *id = held.id;
    return nullptr;
  }
  HeldSums held{.id = lanes.warp->next_id++, .n = product.n, .products = 1};
  held.sums.resize(static_cast<size_t>(kRows * product.n));
  for (int lane = 0; lane < 32; ++lane) {
    held.lanes[static_cast<size_t>(lane)] = lanes.at[lane]->product.c;
    for (int i = 0; i < product.n / 2; ++i) {
      float& now = lanes.at[lane]->product.c[i];
      held.sums[sum_place(lane, i, product.n)] = now;
      now = kPoison;
    }
  }
  *id = held.id;
  lanes.warp->held.push_back(std::move(held));
  return nullptr;
}

using LaneRegisters = std::array<const uint32_t*, 32>;

void read_registers(const LaneRegisters& lanes, std::array<uint16_t, 256>* out) {
  for (int lane = 0; lane < 32; ++lane) {
    for (int w = 0; w < 4; ++w) {
      const int row = lane / 4 + w % 2 * 8, k = lane % 4 * 2 + w / 2 * 8;
      std::memcpy(&(*out)[static_cast<size_t>(row * kDepth + k)],
                  &lanes[static_cast<size_t>(lane)][w], 4);
    }
  }
}

const char* read_a(const Lanes& lanes, IssuedProduct* out) {
  const Call& first = *lanes.at[0];
  if (first.product.a_registers == nullptr) {
    const int row = static_cast<int>(first.warp % 4) * kRows;
    return read_matrix(first.product.a, false, row, kRows, out->a.data());
  }
  LaneRegisters held;
  for (size_t lane = 0; lane < held.size(); ++lane)
    held[lane] = lanes.at[lane]->product.a_registers;
  read_registers(held, &out->a);
  if (first.product.a_stays) out->a_lanes = held;
  return nullptr;
}

const char* issue(void* const* payloads) {
  Lanes lanes;
  if (const char* error = gather(payloads, &lanes)) return error;
  const Call& first = *lanes.at[0];
  const Product& product = first.product;
  for (const Call* call : lanes.at) {
    if (!same_product(call->product, product)) return "lanes differ in a product";
  }
  if (!lanes.warp->fenced) return "a product without a fence since the last wait";
  if (product.n % 8 != 0 || product.n < 8 || product.n > 256) return "no such product";
  HopperState& state = HopperState::current();
  if (first.warp / 4 * 4 + 4 > state.warps.size()) return "a product outside of a warpgroup";
  auto& log = state.groups[first.warp / 4];
  if (lanes.warp->issued == log.size()) log.push_back(product);
  if (!same_product(log[lanes.warp->issued++], product)) return "warps differ in a product";

  IssuedProduct issued{.args = product, .a = {}, .b = {}, .accumulators = 0, .a_lanes = {}};
  issued.b.resize(static_cast<size_t>(product.n * kDepth));
  if (const char* error = read_a(lanes, &issued)) return error;
  if (const char* error =
          read_matrix(product.b, product.b_is_n_major, 0, product.n, issued.b.data())) {
    return error;
  }
  if (const char* error = hold_sums(lanes, &issued.accumulators)) return error;
  lanes.warp->open.push_back(std::move(issued));
  return nullptr;
}

const char* check_unchanged(const IssuedProduct& product, unsigned warp) {
  constexpr const char* kChanged = "shared memory changed under a product";
  std::array<uint16_t, 256> a;
  std::vector<uint16_t> b(product.b.size());
  read_matrix(product.args.b, product.args.b_is_n_major, 0, product.args.n, b.data());
  if (b != product.b) return kChanged;
  if (product.args.a_stays) {
    read_registers(product.a_lanes, &a);
    return a == product.a ? nullptr : "an operand's registers changed under a product";
  }
  if (product.args.a_registers != nullptr) return nullptr;
  read_matrix(product.args.a, false, static_cast<int>(warp % 4) * kRows, kRows, a.data());
  return a == product.a ? nullptr : kChanged;
}

/// Of 16-bit elements products are exact in double: one rounding, as a tensor core has no more.
void add_product(const IssuedProduct& product, float* sums) {
  const int n = product.args.n;
  if (product.args.value == nullptr) {
    return add_short_matrix(reinterpret_cast<const uint8_t*>(product.a.data()),
                            reinterpret_cast<const uint8_t*>(product.b.data()), kRows, n,
                            product.args.keep, sums);
  }
  const auto number = [&](uint16_t bits) { return static_cast<double>(product.args.value(bits)); };
  std::vector<double> b(static_cast<size_t>(n * kDepth)), total(static_cast<size_t>(n));
  for (int j = 0; j < n; ++j) {
    for (int k = 0; k < kDepth; ++k) {
      b[static_cast<size_t>(k * n + j)] = number(product.b[static_cast<size_t>(j * kDepth + k)]);
    }
  }
  for (int row = 0; row < kRows; ++row) {
    float* to = sums + row * n;
    for (int j = 0; j < n; ++j) {
      total[static_cast<size_t>(j)] = product.args.keep ? static_cast<double>(to[j]) : 0.0;
    }
    for (int k = 0; k < kDepth; ++k) {
      const double a = number(product.a[static_cast<size_t>(row * kDepth + k)]);
      const double* from = b.data() + k * n;
      double* at = total.data();
      for (int j = 0; j < n; ++j) at[j] += a * from[j];
    }
    for (int j = 0; j < n; ++j) to[j] = static_cast<float>(total[static_cast<size_t>(j)]);
  }
}

void finish(const IssuedProduct& product, WarpProducts& warp) {
  auto held = warp.held.begin();
  while (held->id != product.accumulators) ++held;
  add_product(product, held->sums.data());
  if (--held->products > 0) return;
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < held->n / 2; ++i) {
      held->lanes[static_cast<size_t>(lane)][i] = held->sums[sum_place(lane, i, held->n)];
    }
  }
  warp.held.erase(held);
}

const char* wait(void* const* payloads) {
  Lanes lanes;
  if (const char* error = gather(payloads, &lanes)) return error;
  const Call& first = *lanes.at[0];
  auto& groups = lanes.warp->committed;
  for (; groups.size() > static_cast<size_t>(first.groups_left); groups.pop_front()) {
    for (const IssuedProduct& product : groups.front()) {
      if (const char* error = check_unchanged(product, first.warp)) return error;
      finish(product, *lanes.warp);
    }
  }
  lanes.warp->fenced = false;
  return nullptr;
}

const char* fence(void* const* payloads) {
  Lanes lanes;
  if (const char* error = gather(payloads, &lanes)) return error;
  lanes.warp->fenced = true;
  return nullptr;
}

const char* commit(void* const* payloads) {
  Lanes lanes;
  if (const char* error = gather(payloads, &lanes)) return error;
  lanes.warp->committed.push_back(std::move(lanes.warp->open));
  lanes.warp->open.clear();
  return nullptr;
}

void call(WarpOperation operation, const Product& product, int groups_left,
          const std::source_location& site) {
  Call payload{thread_number() / 32, groups_left, product};
  warp_collective(0xffffffffu, operation, &payload, site);
}

}  // namespace

void issue_product(const Product& product, const std::source_location& site) {
  call(&issue, product, 0, site);
}
void fence_products(const std::source_location& site) { call(&fence, {}, 0, site); }
void commit_products(const std::source_location& site) { call(&commit, {}, 0, site); }
void wait_products(int groups_left, const std::source_location& site) {
  call(&wait, {}, groups_left, site);
}

double float8_number(uint8_t code) {
  static const auto kNumbers = [] {
    std::array<double, 256> out{};
    for (int i = 0; i < 256; ++i) {
      const int exponent = i >> 3 & 15, mantissa = i & 7;
      const double size =
          exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
      const bool is_nan = exponent == 15 && mantissa == 7;
      out[static_cast<size_t>(i)] = is_nan ? std::nan("") : i < 128 ? size : -size;
    }
    return out;
  }();
  return kNumbers[code];
}

void multiply_16x8x32(const double (&a)[16][32], const double (&b)[32][8], double (&sums)[16][8]) {
  for (int row = 0; row < 16; ++row) {
    double own[8] = {};
    for (int k = 0; k < 32; ++k) {
      for (int j = 0; j < 8; ++j) own[j] += a[row][k] * b[k][j];
    }
    std::memcpy(sums[row], own, sizeof own);
  }
}

}  // namespace headrace::emulation
