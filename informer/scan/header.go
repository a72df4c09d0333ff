package scan

// Header returns the apiVersion and the kind of one JSON object, as parts of doc where they need no decoding, and
// nil where there are none. It stops as soon as it has both, which is at the very start of what an API server
// writes; the rest of the document is not checked.
func Header(doc []byte) (apiVersion, kind []byte, err error) {
	i := spaces(doc, 0)
	if i >= len(doc) || doc[i] != '{' {
		return nil, nil, newError("", i, wantObject)
	}
	i, more, f := first(doc, i, 0)
	for f == ok && more && (apiVersion == nil || kind == nil) {
		var raw []byte
		if raw, i, f = key(doc, i); f != ok {
			break
		}
		to := (*[]byte)(nil)
		switch {
		case isText(raw, "apiVersion"):
			to = &apiVersion
		case isText(raw, "kind"):
			to = &kind
		}
		value := i
		if i, f = skip(doc, i, 1); f != ok {
			break
		}
		if to != nil && doc[value] == '"' {
			if *to = doc[value+1 : i-1 : i-1]; !plain(*to) {
				*to = appendText(nil, *to)
			}
		}
		i, more, f = following(doc, i, '}')
	}
	if f != ok {
		return nil, nil, newError("", i, f)
	}
	return apiVersion, kind, nil
}
