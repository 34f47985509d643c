// packed_weights="auto": the second start maps, with the same bits; whatever is wrong with the
// cache, a model loads; nothing is left behind that could be taken for good.

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "cpp/engine/load/packed_model.h"
#include "cpp/model/expect_error.h"
#include "engine/cache/cache_writer.h"
#include "model/checkpoint/source_identity.h"
#include "model/packed/atomic_file.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

/// What an engine logs, to wait for.
class Log {
 public:
  Log() { ::setenv("HEADRACE_LOG_LEVEL", "info", 1); }
  ~Log() { ::unsetenv("HEADRACE_LOG_LEVEL"); }

  EngineOptions engine() {
    return {.log_sink = [this](LogLevel, std::string_view message) {
      const std::lock_guard lock(mutex_);
      text_ += str_cat(message, "\n");
      changed_.notify_all();
    }};
  }
  /// Until one of the texts has been logged since the last call. "" if none ever is.
  std::string wait_for(std::initializer_list<const char*> texts) {
    std::unique_lock lock(mutex_);
    size_t end = std::string::npos;
    changed_.wait_for(lock, std::chrono::seconds(60), [&] {
      for (const char* text : texts) {
        const size_t at = text_.find(text, seen_);
        if (at != std::string::npos) end = std::min(end, text_.find('\n', at));
      }
      return end != std::string::npos;
    });
    if (end == std::string::npos) return "";
    const std::string out = text_.substr(seen_, end - seen_);
    seen_ = end;
    return out;
  }
  /// How often it has been logged.
  int count(const std::string& text) {
    const std::lock_guard lock(mutex_);
    int times = 0;
    for (size_t at = text_.find(text); at != std::string::npos; at = text_.find(text, at + 1)) {
      ++times;
    }
    return times;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string text_;
  size_t seen_ = 0;
};

constexpr const char* kMissing = "not in the cache yet";
constexpr const char* kUnfit = "in the cache is not used, and will be written again";
constexpr const char* kMapped = "are mapped from the cache";
constexpr const char* kWritten = "are in the cache now";
constexpr const char* kNotWritten = "are not in the cache: ";
constexpr const char* kLeftOut = "leaves its weights out of the cache";
constexpr const char* kUntrusted = "the cache is not used";

class WeightCacheTest : public testing::Test {
 protected:
  WeightCacheTest() { ::setenv("HEADRACE_CACHE", cache().c_str(), 1); }
  ~WeightCacheTest() override { ::unsetenv("HEADRACE_CACHE"); }

  fs::path cache() const { return folder_.path() / "a" / "cache"; }
  ModelOptions options(const PackedModel& model) const {
    ModelOptions out = model.options();
    out.packed_weights = "auto";
    return out;
  }
  /// Everything in the cache folder, temporary files too.
  std::vector<fs::path> files() const {
    std::vector<fs::path> out;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(cache(), ignored)) out.push_back(entry.path());
    return out;
  }

  /// One start: says how it began, answers, and waits for the entry if one is to be written.
  struct Start {
    std::string log, written;
    Answer answer;
    ModelInfo info;
  };
  Start start(const ModelOptions& options) {
    Log log;
    Engine engine(log.engine());
    engine.install_model("m", options);
    Start out;
    out.log = log.wait_for({kMissing, kUnfit, kMapped, kUntrusted});
    out.info = engine.model_info("m");
    engine.start_model("m");
    out.answer = ask(engine, "m");
    const bool writes =
        out.log.find(kMissing) != std::string::npos || out.log.find(kUnfit) != std::string::npos;
    if (writes) out.written = log.wait_for({kWritten, kNotWritten, kLeftOut});
    return out;
  }
  void expect_first(const ModelOptions& options, const Answer& want) {
    const Start first = start(options);
    EXPECT_NE(first.log.find(kMissing), std::string::npos) << first.log;
    EXPECT_NE(first.written.find(kWritten), std::string::npos) << first.written;
    EXPECT_EQ(first.answer, want);
    EXPECT_EQ(first.info.mapped_weight_bytes, 0u);
    EXPECT_EQ(first.info.packed_weights, "");
  }
  void expect_mapped(const ModelOptions& options, const Answer& want) {
    const Start next = start(options);
    EXPECT_NE(next.log.find(kMapped), std::string::npos) << next.log;
    EXPECT_EQ(next.answer, want);
    EXPECT_EQ(fs::path(next.info.packed_weights).parent_path(), cache());
    EXPECT_EQ(next.info.mapped_weight_bytes, options.packed_copy ? 0 : next.info.weight_bytes);
  }
  /// The start finds an entry that won't do, because of `why`, and replaces it.
  void expect_rewritten(const ModelOptions& options, const Answer& want, const char* why) {
    const Start next = start(options);
    EXPECT_NE(next.log.find(kUnfit), std::string::npos) << next.log;
    EXPECT_NE(next.log.find(why), std::string::npos) << next.log;
    EXPECT_NE(next.written.find(kWritten), std::string::npos) << next.written;
    EXPECT_EQ(next.answer, want);
    EXPECT_EQ(files().size(), 1u);
    expect_mapped(options, want);
  }

  TempFolder folder_;
};

Answer plain_answer(ModelOptions options) {
  options.packed_weights.clear();
  return answer_of(options);
}

TEST_F(WeightCacheTest, OfACheckpointOfNumbersThatAreRoundedAgain) {
  const PackedModel model("llama_fp8");
  ModelOptions rounded = options(model);
  rounded.quantization = "wint8";
  const Answer want = plain_answer(rounded);
  expect_first(rounded, want);
  expect_mapped(rounded, want);
}

TEST_F(WeightCacheTest, TheSecondStartMapsAndGivesTheSameBits) {
  const PackedModel model;
  size_t entries = 0;
  for (const char* dtype : {"float32", "bfloat16", "float16"}) {
    for (const char* quantization : {"", "wint8", "wint4"}) {
      SCOPED_TRACE(str_cat(dtype, " ", quantization));
      ModelOptions cached = options(model);
      cached.dtype = dtype;
      cached.quantization = quantization;
      const Answer want = plain_answer(cached);
      EXPECT_EQ(want.tokens.size(), 12u);
      expect_first(cached, want);
      expect_mapped(cached, want);
      cached.packed_copy = true;
      expect_mapped(cached, want);
      EXPECT_EQ(files().size(), ++entries);
    }
  }
  struct stat status{};
  ASSERT_EQ(::stat(cache().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
}

// Other stored quantized weights: tests/python/e2e/test_e2e_stored_quantization.py.
TEST_F(WeightCacheTest, TiedHeadsBiasesNormsAndMxfp4) {
  for (const char* name : {"llama_tied_mqa", "ernie4_5_bias_paddle", "qwen3", "gpt_oss_mxfp4"}) {
    SCOPED_TRACE(name);
    const PackedModel model(name);
    const ModelOptions cached = options(model);
    const Answer want = plain_answer(cached);
    expect_first(cached, want);
    expect_mapped(cached, want);
  }
}

TEST_F(WeightCacheTest, OneOfSeveralReplicasWritesIt) {
  const PackedModel model;
  ModelOptions cached = options(model);
  cached.data_parallel_size = 2;
  cached.num_threads = 2;
  const Answer want = plain_answer(cached);
  Log log;
  {
    Engine engine(log.engine());
    engine.install_model("m", cached);
    engine.start_model("m");
    EXPECT_EQ(ask(engine, "m"), want);
    EXPECT_NE(log.wait_for({kWritten, kNotWritten, kLeftOut}), "");
  }
  EXPECT_EQ(log.count(kMissing), 2);
  EXPECT_EQ(log.count(kWritten), 1);
  EXPECT_EQ(log.count(kNotWritten) + log.count(kLeftOut), 0);
  cached.data_parallel_size = 1;
  expect_mapped(cached, want);
}

TEST_F(WeightCacheTest, TheDraftModelToo) {
  const PackedModel model, draft("llama_tied_mqa");
  ModelOptions cached = options(model);
  cached.speculative = {.method = "draft_model", .num_speculative_tokens = 3};
  cached.speculative.model = draft.file("").string();
  const Answer want = plain_answer(cached);
  Log log;
  {
    Engine engine(log.engine());
    engine.install_model("m", cached);
    engine.start_model("m");
    EXPECT_EQ(ask(engine, "m"), want);
    EXPECT_NE(log.wait_for({kWritten}), "");
    EXPECT_NE(log.wait_for({kWritten}), "");
  }
  EXPECT_EQ(files().size(), 2u);
  expect_mapped(cached, want);
}

TEST_F(WeightCacheTest, KernelsHaveEntriesOfTheirOwn) {
  const PackedModel model;
  for (const char* isa : {"reference", "baseline"}) {
    ModelOptions cached = options(model);
    cached.cpu_isa = isa;
    const Answer want = plain_answer(cached);
    expect_first(cached, want);
    expect_mapped(cached, want);
  }
  EXPECT_EQ(files().size(), 2u);
}

TEST_F(WeightCacheTest, AChangedCheckpointIsPackedAgain) {
  const PackedModel model;
  const ModelOptions cached = options(model);
  expect_first(cached, plain_answer(cached));
  ModelOptions other = cached;
  other.dtype = "float16";
  expect_first(other, plain_answer(other));
  EXPECT_EQ(files().size(), 2u);

  std::string bytes = model.read("model.safetensors");
  const auto time = fs::last_write_time(model.file("model.safetensors"));
  bytes[bytes.size() - 2] = static_cast<char>(bytes[bytes.size() - 2] ^ 1);
  model.write("model.safetensors", bytes);
  fs::last_write_time(model.file("model.safetensors"), time);
  // The entry of the other dtype, of what the checkpoint was, goes too.
  expect_rewritten(cached, plain_answer(cached), "the checkpoint has changed");

  Json config = Json::parse(model.read("config.json"));
  config["rope_theta"] = 4321.0;
  model.write("config.json", config.dump());
  expect_rewritten(cached, plain_answer(cached), "rope_theta");
}

TEST_F(WeightCacheTest, ADamagedEntryIsWrittenAgain) {
  const PackedModel model;
  const ModelOptions cached = options(model);
  const Answer want = plain_answer(cached);
  expect_first(cached, want);
  const fs::path entry = files().at(0);
  const auto size = fs::file_size(entry);
  for (const uintmax_t left : {uintmax_t{0}, uintmax_t{7}, size / 2, size - 1}) {
    fs::resize_file(entry, left);
    expect_rewritten(cached, want, "");
  }
  std::fstream file(entry, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(size - 5000));
  file.put('!');
  file.close();
  expect_rewritten(cached, want, "is damaged");
  std::ofstream(entry) << "no packed file";
  expect_rewritten(cached, want, "");
}

TEST_F(WeightCacheTest, AFolderThatCannotBeWritten) {
  const PackedModel model;
  const ModelOptions cached = options(model);
  const Answer want = plain_answer(cached);
  fs::create_directory(cache().parent_path());
  std::ofstream(cache()) << "a file";
  const Start blocked = start(cached);
  EXPECT_EQ(blocked.answer, want);
  EXPECT_NE(blocked.written.find(kNotWritten), std::string::npos) << blocked.written;
  fs::remove(cache());
  if (::geteuid() == 0) return;  // may write anywhere
  fs::create_directory(cache());
  fs::permissions(cache(), fs::perms::owner_read | fs::perms::owner_exec);
  const Start denied = start(cached);
  fs::permissions(cache(), fs::perms::owner_all);
  EXPECT_EQ(denied.answer, want);
  EXPECT_NE(denied.written.find(kNotWritten), std::string::npos) << denied.written;
}

TEST_F(WeightCacheTest, WhatOthersCanWriteIsNotTrusted) {
  const PackedModel model;
  const ModelOptions cached = options(model);
  const Answer want = plain_answer(cached);
  expect_first(cached, want);
  const fs::path entry = files().at(0);
  for (const fs::path& path : {cache(), entry}) {
    const auto before = fs::status(path).permissions();
    fs::permissions(path, fs::perms::others_write, fs::perm_options::add);
    const Start next = start(cached);
    EXPECT_NE(next.log.find(str_cat(path.string(), " can be written by others")), std::string::npos)
        << next.log;
    EXPECT_EQ(next.answer, want);
    EXPECT_EQ(next.info.packed_weights, "");
    fs::permissions(path, before);
  }
  expect_mapped(cached, want);
  if (::geteuid() != 0) return;  // cannot give files away
  ASSERT_EQ(::chown(cache().c_str(), 12345, static_cast<gid_t>(-1)), 0);
  const Start next = start(cached);
  EXPECT_NE(next.log.find("belongs to user 12345"), std::string::npos) << next.log;
  EXPECT_EQ(next.answer, want);
}

TEST_F(WeightCacheTest, AnUmaskThatLetsOthersWrite) {
  const PackedModel model;
  const ModelOptions cached = options(model);
  const Answer want = plain_answer(cached);
  const mode_t before = ::umask(0);
  expect_first(cached, want);
  ::umask(before);
  expect_mapped(cached, want);
}

TEST_F(WeightCacheTest, AFolderMustBeHad) {
  const PackedModel model;
  ::setenv("HEADRACE_CACHE", "some/where", 1);
  expect_error(ErrorCode::kInvalidArgument, {"some/where", "HEADRACE_CACHE"},
               [&] { answer_of(options(model)); });
  ::unsetenv("HEADRACE_CACHE");
  const std::string home = std::getenv("HOME") == nullptr ? "" : std::getenv("HOME");
  const char* const xdg = std::getenv("XDG_CACHE_HOME");
  const std::string xdg_before = xdg == nullptr ? "" : xdg;
  ::unsetenv("XDG_CACHE_HOME");
  ::unsetenv("HOME");
  expect_error(ErrorCode::kInvalidArgument, {"no home", "HEADRACE_CACHE"},
               [&] { answer_of(options(model)); });
  ::setenv("HOME", folder_.path().c_str(), 1);
  start(options(model));
  EXPECT_TRUE(fs::is_directory(folder_.path() / ".cache/headrace"));
  ::setenv("XDG_CACHE_HOME", (folder_.path() / "x").c_str(), 1);
  start(options(model));
  EXPECT_TRUE(fs::is_directory(folder_.path() / "x/headrace"));
  ::unsetenv("XDG_CACHE_HOME");
  if (!xdg_before.empty()) ::setenv("XDG_CACHE_HOME", xdg_before.c_str(), 1);
  ::setenv("HOME", home.c_str(), 1);
}

TEST_F(WeightCacheTest, LeftoversGoAndAFullDiskLeavesNone) {
  const PackedModel model;
  const ModelOptions cached = options(model);
  const Answer want = plain_answer(cached);
  expect_first(cached, want);
  const fs::path entry = files().at(0);
  fs::remove(entry);
  std::ofstream(cache() / ("." + entry.filename().string() + ".1-1")) << "of a killed process";
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit small{.rlim_cur = 20000, .rlim_max = limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Start next = start(cached);
  setrlimit(RLIMIT_FSIZE, &limit);
  EXPECT_EQ(next.answer, want);
  EXPECT_NE(next.written.find(kNotWritten), std::string::npos) << next.written;
  EXPECT_EQ(files(), std::vector<fs::path>{});
  expect_first(cached, want);
}

TEST_F(WeightCacheTest, ManyEnginesAtOnce) {
  const PackedModel model;
  const ModelOptions cached = options(model);
  const Answer want = plain_answer(cached);
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 5; ++round) EXPECT_EQ(answer_of(cached), want);
    });
  }
  threads.clear();
  start(cached);
  ASSERT_EQ(files().size(), 1u);
  expect_mapped(cached, want);
}

// --- the writer by itself -------------------------------------------------------------------

/// An entry of `bytes` zeros, made from a checkpoint's folder.
internal::CacheEntry entry_of(const PackedModel& model, const fs::path& file,
                              const std::vector<std::byte>& weights) {
  internal::CacheEntry entry{"m", model.file(""), file, "family", {}, {}};
  entry.header.written_by = "test";
  entry.header.config = "{}";
  entry.header.source = stat_source(model.file(""));
  entry.header.tensors = {{.name = "embedding", .bytes = weights.size()}};
  entry.contents = {{weights.data(), weights.size()}};
  return entry;
}

TEST_F(WeightCacheTest, ClosingDuringTheWrite) {
  const PackedModel model;
  Logger silent;
  const std::vector<std::byte> weights(size_t{256} << 20);  // half a second at the writer's pace
  fs::create_directories(cache());
  // On a busy machine the whole file may be written before this thread looks: then it tries again.
  bool is_left_out = false;
  for (int i = 0; i < 10 && !is_left_out; ++i) {
    for (const fs::path& file : files()) fs::remove(file);
    {
      internal::CacheWriter writer(entry_of(model, cache() / "family-1.headrace", weights), silent);
      writer.start();
      while (files().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    for (const fs::path& file : files()) EXPECT_NE(file.filename().string().front(), '.');
    is_left_out = files().empty();
  }
  EXPECT_TRUE(is_left_out);
}

TEST_F(WeightCacheTest, OneWritesAtATime) {
  const PackedModel model;
  Log log;
  Logger logger(log.engine().log_sink, LogLevel::kInfo);
  const std::vector<std::byte> weights(5000);
  fs::create_directories(cache());
  std::optional<AtomicFile> other(cache() / "family-1.headrace");
  internal::CacheWriter writer(entry_of(model, cache() / "family-1.headrace", weights), logger);
  writer.start();
  EXPECT_NE(log.wait_for({kLeftOut}).find("another one is writing"), std::string::npos);
  EXPECT_EQ(files().size(), 1u);
  other.reset();
  EXPECT_EQ(files(), std::vector<fs::path>{});
}

TEST_F(WeightCacheTest, FilesJustMadeAreNoLeftovers) {
  fs::create_directories(cache());
  std::vector<std::jthread> removers;
  for (int i = 0; i < 2; ++i) {
    removers.emplace_back([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) remove_dead_files(cache(), "family");
    });
  }
  for (int i = 0; i < 300; ++i) {
    AtomicFile file(cache() / "family");
    file.append("x", 1);
    ASSERT_NO_THROW(file.commit()) << i;
  }
}

TEST_F(WeightCacheTest, ACheckpointThatChangesMeanwhile) {
  const PackedModel model;
  Log log;
  Logger logger(log.engine().log_sink, LogLevel::kInfo);
  const std::vector<std::byte> weights(5000);
  internal::CacheWriter writer(entry_of(model, cache() / "family-1.headrace", weights), logger);
  model.write("model.safetensors", model.read("model.safetensors"));
  writer.start();
  writer.start();
  EXPECT_NE(log.wait_for({kWritten, kNotWritten}).find("changed while"), std::string::npos);
  EXPECT_EQ(files(), std::vector<fs::path>{});
}

}  // namespace
}  // namespace headrace
