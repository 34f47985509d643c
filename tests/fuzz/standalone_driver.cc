// Runs a fuzz target without libFuzzer, with its flags: mutates the files of a corpus.
//
//   fuzz_x -runs=20000 -seed=1 CORPUS_FOLDER     mutate
//   fuzz_x FILE                                  run one input
//
// The input at hand when the process dies is written to crash-<target's name> in the current
// folder.

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "fuzz/fuzz_target.h"

extern "C" void __attribute__((weak)) __sanitizer_set_death_callback(void (*callback)());

namespace {

namespace fs = std::filesystem;
using Bytes = std::string;

constexpr size_t kMaxInput = 1 << 16;
constexpr const char* kWords[] = {"null",
                                  "true",
                                  "false",
                                  "0",
                                  "-1",
                                  "8",
                                  "16",
                                  "0.0",
                                  "1e999",
                                  "1e-300",
                                  "4294967296",
                                  "9223372036854775808",
                                  "18446744073709551615",
                                  "\"\"",
                                  "\"..\"",
                                  "\"../x\"",
                                  "\"x/y\"",
                                  "\"\\u0000\"",
                                  "\"BF16\"",
                                  "\"U8\"",
                                  "\"yarn\"",
                                  "\"dynamic\"",
                                  "\"llama3\"",
                                  "{}",
                                  "[]",
                                  "[[[[[[[[",
                                  "{\"a\":",
                                  "\xff\xfe",
                                  ",",
                                  ":"};

std::string crash_file;  // NOLINT: read by handlers that take no argument
const Bytes* input_now = nullptr;

void save_input() {
  if (input_now == nullptr) return;
  std::ofstream(crash_file, std::ios::binary) << *input_now;
  std::fprintf(stderr, "the input is in %s\n", crash_file.c_str());
}

void on_signal(int number) {
  save_input();
  std::signal(number, SIG_DFL);
  std::raise(number);
}

class Mutator {
 public:
  Mutator(std::vector<Bytes> seeds, uint64_t seed) : seeds_(std::move(seeds)), random_(seed) {}

  Bytes next() {
    Bytes input = pick_seed();
    for (size_t i = 0, n = 1 + below(6); i < n; ++i) mutate(input);
    if (input.size() > kMaxInput) input.resize(kMaxInput);
    return input;
  }

 private:
  size_t below(size_t n) { return static_cast<size_t>(random_() % n); }
  const Bytes& pick_seed() { return seeds_[below(seeds_.size())]; }

  void mutate(Bytes& input) {
    const size_t at = below(input.size() + 1);
    const size_t length = std::min(input.size() - at, below(32) + 1);
    switch (below(8)) {
      case 0:
        if (at < input.size()) input[at] = static_cast<char>(input[at] ^ (1 << below(8)));
        break;
      case 1:
        input.erase(at, length);
        break;
      case 2:
        input.insert(at, input.substr(below(input.size() + 1), length));
        break;
      case 3:
        input.insert(at, kWords[below(std::size(kWords))]);
        break;
      case 4:
        replace_value(input, at);
        break;
      case 5:
        copy_number(input, at);
        break;
      case 6:
        input.resize(at);
        break;
      default: {
        const Bytes& other = pick_seed();
        const size_t from = below(other.size() + 1);
        input.replace(at, length, other.substr(from, below(64)));
      }
    }
  }

  /// Puts a word in the place of the JSON value behind the next colon.
  void replace_value(Bytes& input, size_t at) {
    const size_t colon = input.find(':', at);
    if (colon == Bytes::npos) return;
    const size_t end = std::min(input.find_first_of(",}]", colon), input.size());
    input.replace(colon + 1, end - colon - 1, kWords[below(std::size(kWords))]);
  }

  /// The number behind `at` becomes another number of the same input, or a neighbour of it.
  void copy_number(Bytes& input, size_t at) {
    const std::string other = number_at(input, below(input.size() + 1)).second;
    const auto [begin, digits] = number_at(input, at);
    if (digits.empty() || other.empty()) return;
    const uint64_t value = std::strtoull(other.c_str(), nullptr, 10) + below(3) - 1;
    input.replace(begin, digits.size(), below(2) == 0 ? other : std::to_string(value));
  }

  static std::pair<size_t, std::string> number_at(const Bytes& input, size_t at) {
    const size_t begin = std::min(input.find_first_of("0123456789", at), input.size());
    const size_t end = std::min(input.find_first_not_of("0123456789", begin), input.size());
    return {begin, input.substr(begin, end - begin)};
  }

  std::vector<Bytes> seeds_;
  std::mt19937_64 random_;
};

Bytes read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<Bytes> read_corpus(const fs::path& path) {
  if (!fs::is_directory(path)) return {read_file(path)};
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(path)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<Bytes> corpus;
  for (const fs::path& file : files) corpus.push_back(read_file(file));
  return corpus;
}

void run(const Bytes& input) {
  input_now = &input;
  // A copy of its own on the heap: reading past its end is seen by ASan.
  std::vector<uint8_t> copy(input.begin(), input.end());
  copy.shrink_to_fit();
  try {
    LLVMFuzzerTestOneInput(copy.data(), copy.size());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "finding: %s\n", e.what());
    std::abort();
  }
  input_now = nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  uint64_t runs = 10000, seed = 1;
  fs::path corpus_path;
  for (int i = 1; i < argc; ++i) {
    if (std::sscanf(argv[i], "-runs=%lu", &runs) == 1) continue;
    if (std::sscanf(argv[i], "-seed=%lu", &seed) == 1) continue;
    corpus_path = argv[i];
  }
  crash_file = "crash-" + fs::path(argv[0]).filename().string();
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(save_input);
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGABRT}) std::signal(number, on_signal);

  const std::vector<Bytes> corpus = read_corpus(corpus_path);
  if (corpus.empty()) {
    std::fprintf(stderr, "no corpus in '%s'\n", corpus_path.c_str());
    return 2;
  }
  for (const Bytes& input : corpus) run(input);
  if (!fs::is_directory(corpus_path)) return 0;
  std::printf("%zu inputs, %lu mutations, seed %lu\n", corpus.size(), runs, seed);
  Mutator mutator(corpus, seed);
  for (uint64_t i = 0; i < runs; ++i) run(mutator.next());
  return 0;
}
