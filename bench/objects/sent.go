package objects

import (
	"bytes"
	"errors"
	"strconv"
)

// SentKey is the annotation that has the time at which a paced change was sent, in
// nanoseconds since 1970.
const SentKey = "bench.kbridge.io/sent"

var sentMember = []byte(`"` + SentKey + `":"`)

// ErrNoTime says that a message holds no object of this package.
var ErrNoTime = errors.New("the message does not say when its change was sent")

// SentAt finds that time in whatever the object's JSON stands in; 0 is that of an
// object that no paced change made.
func SentAt(message []byte) (int64, error) {
	_, rest, found := bytes.Cut(message, sentMember)
	end := bytes.IndexByte(rest, '"')
	if !found || end < 0 {
		return 0, ErrNoTime
	}
	return strconv.ParseInt(string(rest[:end]), 10, 64)
}
