package config

import (
	"errors"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Size is a number of bytes.
type Size int64

// sizePattern is part of schema.json. A fraction is fine if it makes whole bytes.
const sizePattern = `^([0-9]{1,19}(?:\.[0-9]{1,9})?) ?(|[kKMGTP]|[KMGTP]i)B?$`

var sizeRegexp = regexp.MustCompile(sizePattern)

var units = map[string]int64{
	"":  1,
	"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15,
	"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50,
}

func parseSize(s string) (Size, error) {
	m := sizeRegexp.FindStringSubmatch(s)
	if m == nil {
		return 0, errors.New("not a size")
	}
	n, _ := new(big.Rat).SetString(m[1])
	n.Mul(n, new(big.Rat).SetInt64(units[m[2]]))
	if !n.IsInt() || !n.Num().IsInt64() {
		return 0, errors.New("not a whole number of bytes")
	}
	return Size(n.Num().Int64()), nil
}

// String returns the size in the largest binary unit that gives a whole number.
func (s Size) String() string {
	n, unit := int64(s), ""
	for _, u := range []string{"KiB", "MiB", "GiB", "TiB", "PiB"} {
		if n == 0 || n%1024 != 0 {
			break
		}
		n, unit = n/1024, u
	}
	return strconv.FormatInt(n, 10) + unit
}

// durationPattern is part of schema.json.
const durationPattern = `^(0|([0-9]+d)?([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))*)$`

var durationRegexp = regexp.MustCompile(durationPattern)

const day = 24 * time.Hour

// parseDuration takes what Go takes, without a sign, and days in front: 1d12h.
func parseDuration(s string) (time.Duration, error) {
	if s == "" || !durationRegexp.MatchString(s) {
		return 0, errors.New("not a duration")
	}
	var d time.Duration
	if days, rest, ok := strings.Cut(s, "d"); ok {
		n, err := strconv.ParseInt(days, 10, 64)
		if err != nil || n > int64(1<<63-1)/int64(day) {
			return 0, errors.New("too long")
		}
		if d = time.Duration(n) * day; rest == "" {
			return d, nil
		}
		s = rest
	}
	r, err := time.ParseDuration(s)
	if err != nil {
		return 0, err
	}
	if d+r < d {
		return 0, errors.New("too long")
	}
	return d + r, nil
}
