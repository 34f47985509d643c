#include "cuda/host/trials/trial_record.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "cpp/model/checkpoint_files.h"

namespace headrace::cuda {
namespace {

namespace fs = std::filesystem;

class TrialRecordTest : public testing::Test {
 protected:
  /// The only file of the folder.
  fs::path file() const {
    const auto found = fs::directory_iterator(folder_.path());
    return found == fs::directory_iterator() ? fs::path() : found->path();
  }
  static std::string text(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static void write(const fs::path& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
  }

  const TempFolder folder_;
  const TrialRecord record_{folder_.path().string(), "a key"};
};

TEST_F(TrialRecordTest, RemembersItsKeyInAFileOfTheUsersOwn) {
  EXPECT_FALSE(record_.passed());
  record_.keep();
  EXPECT_TRUE(record_.passed());
  EXPECT_EQ(fs::status(file()).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_FALSE(TrialRecord(folder_.path().string(), "another").passed());
  EXPECT_FALSE(TrialRecord("", "a key").passed());
}

// In a folder that others can write to, too.
TEST_F(TrialRecordTest, FollowsNoLinkAndReplacesWhatWasLeft) {
  record_.keep();
  const fs::path kept = file(), part = kept.string() + "." + std::to_string(::getpid());
  for (const bool is_link : {true, false}) {
    SCOPED_TRACE(is_link);
    const TempFolder elsewhere;
    const fs::path other = elsewhere.path() / "other";
    write(other, "not ours");
    fs::remove(kept);
    if (is_link) {
      fs::create_symlink(other, part);
    } else {
      write(part, "half of");
      fs::permissions(part, fs::perms::all);
    }
    record_.keep();
    EXPECT_EQ(text(other), "not ours");
    EXPECT_TRUE(record_.passed());
    EXPECT_FALSE(fs::is_symlink(kept));
    EXPECT_EQ(file(), kept);
  }
}

TEST_F(TrialRecordTest, AFolderThatCantBeWrittenIsNoError) {
  write(folder_.path() / "file", "");
  const TrialRecord record((folder_.path() / "file").string(), "a key");
  record.keep();
  EXPECT_FALSE(record.passed());
}

}  // namespace
}  // namespace headrace::cuda
