package scriptedapi

import utilruntime "k8s.io/apimachinery/pkg/util/runtime"

// The handlers of apimachinery's HandleError, which a Reflector calls when a list fails, are a logger and a rate
// limit that remembers in a global when the last error was. In a bubble, where it is the year 2000, that time is in
// the future (at first it is the start of the process), and the limit sleeps until then. So a program with this
// package does without it; an init, because the list of handlers has no lock.
func init() { utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1] }
