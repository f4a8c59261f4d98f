// Text that others wrote (names in files, what a server says), as a terminal may get it.
#pragma once

#include <string>
#include <string_view>

namespace rlk::cli {

// Replaces what could steer a terminal or hide text: control characters (C0, DEL, C1), marks that
// change the direction of writing, and bytes that are not UTF-8. Each of their bytes becomes \xNN.
// A backslash stays as it is: the text is for people, not to be read back.
std::string Printable(std::string_view text);

// The same for text of several lines, whose line ends are ours.
std::string PrintableLines(std::string_view text);

}  // namespace rlk::cli
