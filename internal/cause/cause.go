// Package cause recognises a failure that repeats.
package cause

import "regexp"

// varying is what differs each time in the text of one failure: times, addresses, ports,
// sizes and counters. Numbers of up to three digits stay, since HTTP's codes are the cause;
// and so do names with digits in them.
var varying = regexp.MustCompile(`\b\d+(\.\d+)?(ns|µs|ms|s|m|h)\b|\[[0-9a-fA-F:.]+\]:\d+|:\d{4,5}\b|\b\d[\dT:.+-]{3,}Z?`)

// Of returns the error's text without what differs each time, so that the causes of two
// failures can be compared. It is for comparison, and not for people.
func Of(err error) string {
	return varying.ReplaceAllString(err.Error(), "#")
}
