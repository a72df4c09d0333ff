package informer

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kbridge-io/kbridge/event"
)

// object is an object as client-go sees it: what the Reflector asks of metadata,
// and the bytes, which it does not look at.
type object struct {
	// The getters of what the Reflector does not ask for, and the annotations: noMeta's,
	// or those of the bookmark that ends a watch list's first events.
	*metav1.ObjectMeta
	event.Object
	// plain is the object's JSON in a buffer of its own, until it has been handed over: the
	// object has no body then. Nil: it has one.
	plain *[]byte
}

var (
	_ runtime.Object = (*object)(nil)
	_ metav1.Object  = (*object)(nil)

	noMeta           metav1.ObjectMeta
	initialEventsEnd = metav1.ObjectMeta{Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}
)

// GetObjectKind is asked for to tell Tables from objects: it is neither's.
func (o *object) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject returns the object itself: nobody changes it.
func (o *object) DeepCopyObject() runtime.Object { return o }

func (o *object) GetNamespace() string { return o.Object.Namespace }
func (o *object) GetName() string      { return o.Object.Name }
func (o *object) GetUID() types.UID    { return types.UID(o.Object.UID) }

// GetResourceVersion is the one that the server gave, with which a watch can go on, or empty.
func (o *object) GetResourceVersion() string {
	if isUnversioned(&o.Object) {
		return ""
	}
	return o.Object.ResourceVersion
}

// String names the object; client-go logs objects, and bodies do not belong into logs.
func (o *object) String() string {
	return fmt.Sprintf("%s/%s@%s", o.Object.Namespace, o.Object.Name, o.Object.ResourceVersion)
}

// MarshalLog is String for klog's structured loggers.
func (o *object) MarshalLog() any { return o.String() }

// Format keeps %#v and its like from printing the body.
func (o *object) Format(f fmt.State, _ rune) { fmt.Fprint(f, o.String()) }

// objectList is a page of a list. The field must be called Items: client-go finds
// it by reflection.
type objectList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []*object
}

var _ runtime.Object = (*objectList)(nil)

// DeepCopyObject returns the list itself: nobody changes it.
func (l *objectList) DeepCopyObject() runtime.Object { return l }

// Format keeps bodies out of logs.
func (l *objectList) Format(f fmt.State, _ rune) {
	fmt.Fprintf(f, "list of %d objects@%s", len(l.Items), l.ResourceVersion)
}
