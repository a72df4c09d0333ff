package report

import (
	"math"
	"slices"
)

// Percentile returns the value below or at which so many percent of the values are, by
// linear interpolation between the two nearest; 0 where there is no value.
func Percentile(values []float64, percent float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	rank := percent / 100 * float64(len(sorted)-1)
	below, share := math.Modf(rank)
	i := int(below)
	if i+1 == len(sorted) {
		return sorted[i]
	}
	return sorted[i] + share*(sorted[i+1]-sorted[i])
}
