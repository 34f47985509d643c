#include "grammar/schema/formats.h"

#include <map>
#include <string>

namespace headrace::grammar {

namespace {

using std::string;

string any_of(std::initializer_list<string> parts) {
  string out;
  for (const string& part : parts) out += (out.empty() ? "(?:" : "|") + part;
  return out + ")";
}

// RFC 3339, with the days that a month has; February has 29.
const string kDate =
    "[0-9]{4}-" + any_of({"(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])",
                          "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)", "02-(?:0[1-9]|[12][0-9])"});
const string kTime =
    "(?:[01][0-9]|2[0-3]):[0-5][0-9]:(?:[0-5][0-9]|60)(?:\\.[0-9]+)?"
    "(?:[zZ]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";

// RFC 3339, appendix A.
string duration() {
  const string time =
      "T" + any_of({"[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?", "[0-9]+M(?:[0-9]+S)?", "[0-9]+S"});
  const string date = any_of({"[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?", "[0-9]+M(?:[0-9]+D)?", "[0-9]+D"});
  return "P" + any_of({date + "(?:" + time + ")?", time, "[0-9]+W"});
}

const string kByte = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
const string kIpv4 = "(?:" + kByte + "\\.){3}" + kByte;

// RFC 1123.
const string kLabel = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?";
const string kHostname = kLabel + "(?:\\." + kLabel + ")*";

// RFC 5321 without quoted names.
string email() {
  const string atom = "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]+";
  const string label = "[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?";
  return atom + "(?:\\." + atom + ")*@" +
         any_of({label + "(?:\\." + label + ")*", "\\[" + kIpv4 + "\\]"});
}

// RFC 4291, section 2.2: eight groups, or fewer around "::"; the last two may be an IPv4 address.
string ipv6() {
  const string group = "[0-9a-fA-F]{1,4}";
  const string end = any_of({group + ":" + group, kIpv4});
  string out = "(?:(?:" + group + ":){6}" + end;
  for (int before = 0; before <= 7; ++before) {
    const string head =
        before == 0 ? "" : "(?:" + group + ":){" + std::to_string(before - 1) + "}" + group;
    out += "|" + head + "::";
    const int after = 7 - before;  // groups that there may be at most
    if (after >= 2) {
      out +=
          "(?:(?:" + group + ":){0," + std::to_string(after - 2) + "}" + end + "|" + group + ")?";
    } else if (after == 1) {
      out += "(?:" + group + ")?";
    }
  }
  return out + ")";
}

// RFC 3986.
string uri() {
  const string escape = "%[0-9a-fA-F]{2}";
  const string plain = "a-zA-Z0-9._~!$&'()*+,;=\\-";
  const auto run = [&](const string& more) { return "(?:[" + plain + more + "]|" + escape + ")"; };
  const string host = any_of(
      {"\\[" + any_of({ipv6(), "v[0-9a-fA-F]+\\.[" + plain + ":]+"}) + "\\]", run("") + "*"});
  const string authority = "(?:" + run(":") + "*@)?" + host + "(?::[0-9]*)?";
  const string segment = run(":@");
  const string rooted = "/(?:" + segment + "+(?:/" + segment + "*)*)?";
  const string rootless = segment + "+(?:/" + segment + "*)*";
  const string path = any_of({"//" + authority + "(?:/" + segment + "*)*", rooted, rootless, ""});
  return "[a-zA-Z][a-zA-Z0-9+.-]*:" + path + "(?:\\?" + run(":@/?") + "*)?(?:#" + run(":@/?") +
         "*)?";
}

}  // namespace

std::string_view format_pattern(std::string_view name) {
  static const std::map<std::string_view, string> kPatterns = {
      {"date", kDate},
      {"time", kTime},
      {"date-time", kDate + "[tT]" + kTime},
      {"duration", duration()},
      {"email", email()},
      {"hostname", kHostname},
      {"ipv4", kIpv4},
      {"ipv6", ipv6()},
      {"uuid", "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"},
      {"uri", uri()},
  };
  const auto found = kPatterns.find(name);
  return found == kPatterns.end() ? std::string_view() : found->second;
}

}  // namespace headrace::grammar
