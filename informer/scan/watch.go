package scan

// The types of watch frames.
const (
	Added    = "ADDED"
	Modified = "MODIFIED"
	Deleted  = "DELETED"
	Bookmark = "BOOKMARK"
	Failure  = "ERROR" // the object is a Status
)

// WatchEvent splits a watch frame, {"type":"ADDED","object":{…}}, into its type and its object, which is a part of
// frame. Keys may come in any order, unknown ones are passed over, and the last of two equal ones counts. An
// unknown type is returned as it is.
func WatchEvent(frame []byte) (typ string, object []byte, err error) {
	typ, at, end, err := split(frame)
	if err != nil {
		return "", nil, err
	}
	return typ, frame[at:end], nil
}

// WatchEvent is the package's WatchEvent and Object in one pass over the frame. The object of an ERROR frame, a
// Status, is appended as it is, and m stays empty.
func (r *Rules) WatchEvent(dst, frame []byte, m *Meta) (typ string, out []byte, err error) {
	if typ, at := head(frame); typ != "" && typ != Failure {
		if out, end, err := r.object(dst, frame, at, 1, m); err == nil {
			end, more, f := following(frame, end, '}')
			if f == ok && !more && spaces(frame, end) == len(frame) {
				return typ, out, nil
			}
		}
		// A fault, or a key behind the object, which may change what has been read.
	}
	*m = Meta{}
	typ, at, end, err := split(frame)
	if err != nil {
		return "", dst, err
	}
	if typ == Failure {
		return typ, append(dst, frame[at:end]...), nil
	}
	if out, _, err = r.object(dst, frame[:end], at, 1, m); err != nil {
		return "", dst, err
	}
	return typ, out, nil
}

// head returns the type of a frame that begins as those of the API server do, with the type and then the object,
// and the offset of the object's value. For another frame typ is empty.
func head(frame []byte) (typ string, at int) {
	i := spaces(frame, 0)
	if i >= len(frame) || frame[i] != '{' {
		return "", 0
	}
	raw, i, f := key(frame, spaces(frame, i+1))
	if f != ok || string(raw) != "type" || i >= len(frame) || frame[i] != '"' {
		return "", 0
	}
	end, f := str(frame, i+1)
	if f != ok {
		return "", 0
	}
	typ = eventType(frame[i+1 : end-1])
	i, more, f := following(frame, end, '}')
	if f != ok || !more {
		return "", 0
	}
	if raw, i, f = key(frame, i); f != ok || string(raw) != "object" {
		return "", 0
	}
	return typ, i
}

// split returns the type of any frame and where its object stands.
func split(frame []byte) (typ string, at, end int, err error) {
	i := spaces(frame, 0)
	if i >= len(frame) || frame[i] != '{' {
		return "", 0, 0, newError("", i, wantObject)
	}
	var typeAt, object span
	i, more, f := first(frame, i, 0)
	for f == ok && more {
		var raw []byte
		if raw, i, f = key(frame, i); f != ok {
			break
		}
		value := i
		if i, f = skip(frame, i, 1); f != ok {
			break
		}
		switch {
		case isText(raw, "type"):
			typeAt = span{value, i}
		case isText(raw, "object"):
			object = span{value, i}
		}
		i, more, f = following(frame, i, '}')
	}
	if f == ok {
		if i = spaces(frame, i); i < len(frame) {
			f = wantEnd
		}
	}
	switch {
	case f != ok:
		return "", 0, 0, newError("", i, f)
	case typeAt.to == 0:
		return "", 0, 0, newError("", i, wantType)
	case frame[typeAt.from] != '"':
		return "", 0, 0, newError("type", typeAt.from, wantString)
	case object.to == 0:
		return "", 0, 0, newError("", i, wantObjectKey)
	case frame[object.from] != '{':
		return "", 0, 0, newError("object", object.from, wantObject)
	}
	return eventType(frame[typeAt.from+1 : typeAt.to-1]), object.from, object.to, nil
}

// eventType returns the text of raw, for the known types without an allocation.
func eventType(raw []byte) string {
	switch string(raw) {
	case Added:
		return Added
	case Modified:
		return Modified
	case Deleted:
		return Deleted
	case Bookmark:
		return Bookmark
	case Failure:
		return Failure
	}
	return text(raw)
}
