package config

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Nearest returns the one of the words that is meant, perhaps, by one that is not among
// them, or nothing where none is like it.
func Nearest(word string, words []string) string {
	near, least := "", mostMistakes+1
	for _, w := range words {
		if n := mistakes(word, w); n < least && n < (len(w)+1)/2 {
			near, least = w, n
		}
	}
	return near
}

// Misspelt says that a word may be a misspelling of another one.
func Misspelt(word, of string) bool { return Nearest(word, []string{of}) != "" }

// mostMistakes is how many letters a misspelt word has too many, too few or wrong.
const mostMistakes = 2

func mistakes(a, b string) int { return editDistance(strings.ToLower(a), strings.ToLower(b)) }

// editDistance counts the insertions, deletions and replacements that turn a
// into b. It gives up on long words.
func editDistance(a, b string) int {
	if len(a) > 64 {
		return len(a)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// wantResource says what to write in place of what is no name of a resource.
func wantResource(name string) string {
	want := "a lower-case plural such as deployments, without its group"
	if lower := strings.ToLower(name); len(validation.IsDNS1035Label(lower)) == 0 {
		want += ": " + lower + ", perhaps"
	}
	return want
}
