package objects

import (
	"strconv"
	"time"
)

// object is what the values in the holes follow from.
type object struct {
	State
	own   uint64 // random bits of the object
	group uint64 // random bits of its workload
	ward  uint64 // the workload's number
	spot  uint64 // the object's number in the workload
}

// filler appends a value.
type filler = func(dst []byte, o *object, salt uint64) []byte

// holes are the values that a template can ask for, by name.
var holes = map[string]func(args []string) filler{
	// Who the object is.
	"name":          plain(appendName),
	"namespace":     plain(func(dst []byte, o *object) []byte { return appendWords(append(dst, "team-"...), 1, o.group%41) }),
	"uid":           plain(func(dst []byte, o *object) []byte { return appendUID(dst, o.own) }),
	"version":       plain(func(dst []byte, o *object) []byte { return strconv.AppendUint(dst, o.Version, 10) }),
	"sent":          plain(func(dst []byte, o *object) []byte { return appendPadded(dst, uint64(o.Sent), 19) }),
	"owner":         plain(func(dst []byte, o *object) []byte { return appendUID(dst, o.group) }),
	"workload":      plain(appendWorkload),
	"template-hash": plain(func(dst []byte, o *object) []byte { return appendLetters(dst, o.group, 10) }),

	// What changes with the version.
	"changed":  plain(func(dst []byte, o *object) []byte { return appendTime(dst, o.Version) }),
	"restarts": plain(func(dst []byte, o *object) []byte { return strconv.AppendUint(dst, o.Version%97, 10) }),

	// Where it is.
	"created": plain(func(dst []byte, o *object) []byte { return appendTime(dst, o.own%40_000_000) }),
	"node":    plain(func(dst []byte, o *object) []byte { return strconv.AppendUint(append(dst, "node-"...), o.own%2003, 10) }),
	"host-ip": plain(func(dst []byte, o *object) []byte { return appendIP(dst, 10, o.own%2003) }),
	"pod-ip":  plain(func(dst []byte, o *object) []byte { return appendIP(dst, 172, uint64(o.Index)) }),

	// Random values of the object.
	"hex":     sized(func(dst []byte, o *object, salt uint64, n int) []byte { return appendHex(dst, o.own+salt, n) }),
	"letters": sized(func(dst []byte, o *object, salt uint64, n int) []byte { return appendLetters(dst, mix(o.own+salt), n) }),

	// Random values of the workload, shared by its objects.
	"hash":  sized(func(dst []byte, o *object, salt uint64, n int) []byte { return appendHex(dst, o.group+salt, n) }),
	"words": sized(func(dst []byte, o *object, salt uint64, n int) []byte { return appendWords(dst, n, mix(o.group+salt)) }),
	"word": func([]string) filler {
		return func(dst []byte, o *object, salt uint64) []byte { return appendWords(dst, 1, mix(o.group+salt)) }
	},
	"variable": func([]string) filler {
		return func(dst []byte, o *object, salt uint64) []byte {
			at := len(dst)
			dst = appendWords(dst, 2, mix(o.group+salt))
			for i, c := range dst[at:] {
				if c == '-' {
					dst[at+i] = '_'
				} else {
					dst[at+i] = c &^ 0x20
				}
			}
			return dst
		}
	},
	"number": func(args []string) filler {
		low, high := uint64(number(args[0])), uint64(number(args[1]))
		return func(dst []byte, o *object, salt uint64) []byte {
			return strconv.AppendUint(dst, low+mix(o.group+salt)%(high-low), 10)
		}
	},
	"image": func(args []string) filler {
		which := uint64(len(args[0]))
		return func(dst []byte, o *object, _ uint64) []byte {
			bits := imageBits(o, which)
			dst = appendWords(append(dst, "registry.example.com/"...), 2, bits)
			dst = strconv.AppendUint(append(dst, ":v"...), bits>>32%7, 10)
			return strconv.AppendUint(append(dst, '.'), bits>>40%50, 10)
		}
	},
	"image-id": func(args []string) filler {
		which := uint64(len(args[0]))
		return func(dst []byte, o *object, _ uint64) []byte {
			bits := imageBits(o, which)
			dst = appendWords(append(dst, "registry.example.com/"...), 2, bits)
			return appendHex(append(dst, "@sha256:"...), bits, 64)
		}
	},
}

func plain(fill func([]byte, *object) []byte) func([]string) filler {
	return func([]string) filler {
		return func(dst []byte, o *object, _ uint64) []byte { return fill(dst, o) }
	}
}

func sized(fill func([]byte, *object, uint64, int) []byte) func([]string) filler {
	return func(args []string) filler {
		n := number(args[0])
		return func(dst []byte, o *object, salt uint64) []byte { return fill(dst, o, salt, n) }
	}
}

// imageBits are the same for all holes about one image of the workload.
func imageBits(o *object, which uint64) uint64 { return mix(o.group ^ which) }

// mix is the finalizer of SplitMix64: random bits that follow from x.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// appendName appends a name that no other object has: the workload's number is in it,
// and the last letter is the object's in the workload.
func appendName(dst []byte, o *object) []byte {
	dst = appendLetters(append(appendWorkload(dst, o), '-'), o.group, 10)
	return append(appendLetters(append(dst, '-'), o.own, 4), alphabet[o.spot%uint64(len(alphabet))])
}

func appendWorkload(dst []byte, o *object) []byte {
	return strconv.AppendUint(append(appendWords(dst, 2, o.group), '-'), o.ward, 36)
}

// alphabet is that of Kubernetes' generated names.
const alphabet = "bcdfghjklmnpqrstvwxz2456789"

func appendLetters(dst []byte, bits uint64, n int) []byte {
	for range n {
		dst = append(dst, alphabet[bits%uint64(len(alphabet))])
		bits /= uint64(len(alphabet))
	}
	return dst
}

const hexDigits = "0123456789abcdef"

func appendHex(dst []byte, seed uint64, n int) []byte {
	for i := 0; i < n; i += 16 {
		bits := mix(seed + uint64(i))
		for range min(16, n-i) {
			dst = append(dst, hexDigits[bits&15])
			bits >>= 4
		}
	}
	return dst
}

func appendUID(dst []byte, seed uint64) []byte {
	for i, n := range [...]int{8, 4, 4, 4, 12} {
		if i > 0 {
			dst = append(dst, '-')
		}
		dst = appendHex(dst, seed^uint64(i)<<8, n)
	}
	return dst
}

func appendIP(dst []byte, first byte, number uint64) []byte {
	dst = strconv.AppendUint(dst, uint64(first), 10)
	for _, part := range [...]uint64{number >> 16 & 255, number >> 8 & 255, number & 255} {
		dst = strconv.AppendUint(append(dst, '.'), part, 10)
	}
	return dst
}

// epoch is when the cluster began, in seconds since 1970.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Unix()

func appendTime(dst []byte, seconds uint64) []byte {
	return time.Unix(epoch+int64(seconds), 0).UTC().AppendFormat(dst, time.RFC3339)
}

func appendPadded(dst []byte, n uint64, width int) []byte {
	at := len(dst)
	for range width {
		dst = append(dst, '0')
	}
	for i := at + width - 1; n > 0 && i >= at; i-- {
		dst[i] = byte('0' + n%10)
		n /= 10
	}
	return dst
}

// vocabulary is what names and values are made of.
var vocabulary = [...]string{
	"account", "address", "archive", "audit", "balance", "basket", "batch", "billing",
	"booking", "cache", "catalog", "charge", "checkout", "claims", "consent", "courier",
	"credit", "delivery", "device", "dispatch", "document", "export", "feature", "fraud",
	"gateway", "history", "identity", "import", "indexer", "ingest", "inventory", "invoice",
	"ledger", "loyalty", "mailer", "metrics", "notifier", "offer", "orders", "partner",
	"payment", "picker", "policy", "portal", "pricing", "profile", "quota", "ranking",
	"receipt", "refund", "report", "rewards", "router", "scoring", "search", "session",
	"shipping", "stock", "supplier", "tariff", "ticket", "voucher", "wallet", "warehouse",
}

func appendWords(dst []byte, n int, bits uint64) []byte {
	for i := range n {
		if i > 0 {
			dst = append(dst, '-')
		}
		dst = append(dst, vocabulary[bits%uint64(len(vocabulary))]...)
		bits >>= 6
	}
	return dst
}
