package informer

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/kbridge-io/kbridge/event"
)

// Some servers of aggregated APIs give objects no resourceVersion. Such an object's version
// is made of its body, as in ~3f2a…, so that a list finds what it has found before; one that
// is told gets a number behind it, as in ~3f2a….9k2f, so that no two events of an object
// have one id where it goes back to a state that it has been in.

// noVersion begins such versions. No server's begin so: they are not to be interpreted, but
// API servers give numbers.
const noVersion = "~"

// contentVersion makes a version of a body: of what it means, as lists and watches order
// the members differently.
func contentVersion(body []byte) (string, error) {
	var meaning any
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if err := d.Decode(&meaning); err != nil {
		return "", err
	}
	ordered, err := json.Marshal(meaning)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(ordered)
	return noVersion + hex.EncodeToString(sum[:12]), nil
}

// content is the part of such a version that the body makes.
func content(version string) string {
	made, _, _ := strings.Cut(version, ".")
	return made
}

// isUnversioned says that the server gave the object no version.
func isUnversioned(o *event.Object) bool { return strings.HasPrefix(o.ResourceVersion, noVersion) }

// tellApart gives an object that has no version of the server's the one that it is known
// under, if it has not changed since, or else one that it has never had.
func (v *view) tellApart(o, known *event.Object) {
	if known != nil && known.UID == o.UID && content(known.ResourceVersion) == o.ResourceVersion {
		o.ResourceVersion = known.ResourceVersion
		return
	}
	v.stamp = max(v.stamp+1, v.now().UnixNano()) // no clock is that fine
	o.ResourceVersion += "." + strconv.FormatInt(v.stamp, 36)
}
