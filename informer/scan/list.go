package scan

import "strconv"

// ListMeta is the metadata of a list.
type ListMeta struct {
	APIVersion, Kind   string
	ResourceVersion    string
	Continue           string
	RemainingItemCount *int64 // nil where the server did not count
	Items              bool   // there are items, or it is said that there are none
}

// List walks the body of a list response and calls each with every item, an object, as a part of body. items may
// be null, absent, or in front of the metadata. An error of each ends the walk and is returned as it is.
//
// Items are handed out while the rest of the body is still unread, so a fault can come after some of them. For the
// same reason items may be there only once, where elsewhere the last of two equal keys counts.
func List(body []byte, each func(item []byte) error) (ListMeta, error) {
	l := list{body: body, each: each}
	end, f, err := l.document(spaces(body, 0))
	if err != nil {
		return ListMeta{}, err
	}
	if f == ok {
		if end = spaces(body, end); end < len(body) {
			f = wantEnd
		}
	}
	if f != ok {
		return ListMeta{}, newError(l.path, end, f)
	}
	return l.meta, nil
}

// list is the state of a List. Its methods return where they ended, a fault of the body, and an error of each.
type list struct {
	body  []byte
	each  func(item []byte) error
	meta  ListMeta
	items bool   // items were handed out
	path  string // of the fault, where there is one
}

func (l *list) document(i int) (int, fault, error) {
	b := l.body
	if i >= len(b) || b[i] != '{' {
		return i, wantObject, nil
	}
	i, more, f := first(b, i, 0)
	for f == ok && more {
		var raw []byte
		var err error
		if raw, i, f = key(b, i); f != ok {
			break
		}
		switch {
		case isText(raw, "items"):
			l.meta.Items = true
			i, f, err = l.walkItems(i)
		case isText(raw, "metadata"):
			i, f = l.walkMetadata(i)
		case isText(raw, "apiVersion"):
			i, f = l.string(&l.meta.APIVersion, i, 1, "apiVersion")
		case isText(raw, "kind"):
			i, f = l.string(&l.meta.Kind, i, 1, "kind")
		default:
			i, f = skip(b, i, 1)
		}
		if f != ok || err != nil {
			return i, f, err
		}
		i, more, f = following(b, i, '}')
	}
	return i, f, nil
}

func (l *list) walkItems(i int) (int, fault, error) {
	b := l.body
	if i >= len(b) || b[i] != '[' {
		end, f := l.null(i, 1, "items", wantArray)
		return end, f, nil
	}
	if l.items {
		return i, wantOneItems, nil
	}
	l.items = true
	i, more, f := first(b, i, 1)
	for f == ok && more {
		if i >= len(b) || b[i] != '{' {
			l.path = "items"
			return i, wantObject, nil
		}
		item := i
		if i, f = skip(b, i, 2); f != ok {
			break
		}
		if err := l.each(b[item:i:i]); err != nil {
			return i, ok, err
		}
		i, more, f = following(b, i, ']')
	}
	return i, f, nil
}

func (l *list) walkMetadata(i int) (int, fault) {
	b := l.body
	l.meta.ResourceVersion, l.meta.Continue, l.meta.RemainingItemCount = "", "", nil
	if i >= len(b) || b[i] != '{' {
		return l.null(i, 1, "metadata", wantObject)
	}
	i, more, f := first(b, i, 1)
	for f == ok && more {
		var raw []byte
		if raw, i, f = key(b, i); f != ok {
			break
		}
		switch {
		case isText(raw, "resourceVersion"):
			i, f = l.string(&l.meta.ResourceVersion, i, 2, "metadata.resourceVersion")
		case isText(raw, "continue"):
			i, f = l.string(&l.meta.Continue, i, 2, "metadata.continue")
		case isText(raw, "remainingItemCount"):
			i, f = l.count(i)
		default:
			i, f = skip(b, i, 2)
		}
		if f == ok {
			i, more, f = following(b, i, '}')
		}
	}
	return i, f
}

// string reads the string or null at i.
func (l *list) string(to *string, i, depth int, path string) (int, fault) {
	*to = ""
	if i >= len(l.body) || l.body[i] != '"' {
		return l.null(i, depth, path, wantString)
	}
	end, f := str(l.body, i+1)
	if f == ok {
		*to = text(l.body[i+1 : end-1])
	}
	return end, f
}

func (l *list) count(i int) (int, fault) {
	l.meta.RemainingItemCount = nil
	end, f := skip(l.body, i, 2)
	if f != ok || l.body[i] == 'n' {
		return end, f
	}
	n, err := strconv.ParseInt(string(l.body[i:end]), 10, 64)
	if err != nil {
		l.path = "metadata.remainingItemCount"
		return i, wantInteger
	}
	l.meta.RemainingItemCount = &n
	return end, ok
}

// null passes over a null at i, and is a fault of path for anything else.
func (l *list) null(i, depth int, path string, want fault) (int, fault) {
	if i >= len(l.body) || l.body[i] != 'n' {
		l.path = path
		return i, want
	}
	return skip(l.body, i, depth)
}
