// Package plural has nouns agree with their numbers.
package plural

import "fmt"

// Of is the number with its noun, as in "1 event" and "2 events". The noun is one that
// takes an s.
func Of[N int | int64 | uint64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
