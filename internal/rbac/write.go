package rbac

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// WriteYAML writes the objects as kubectl reads them, a document each.
func WriteYAML(w io.Writer, objects []runtime.Object) error {
	var out bytes.Buffer
	for i, o := range objects {
		if i > 0 {
			out.WriteString("---\n")
		}
		doc, err := yaml.Marshal(o)
		if err != nil {
			return fmt.Errorf("encode roles: %w", err)
		}
		out.Write(doc)
	}
	return write(w, out.Bytes())
}

// WriteJSON writes the objects as one list.
func WriteJSON(w io.Writer, objects []runtime.Object) error {
	list := struct {
		metav1.TypeMeta `json:",inline"`
		Items           []runtime.Object `json:"items"`
	}{metav1.TypeMeta{APIVersion: "v1", Kind: "List"}, append([]runtime.Object{}, objects...)}
	out, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return fmt.Errorf("encode roles: %w", err)
	}
	return write(w, append(out, '\n'))
}

func write(w io.Writer, data []byte) error {
	if _, err := w.Write(data); err != nil {
		return fmt.Errorf("write roles: %w", err)
	}
	return nil
}
