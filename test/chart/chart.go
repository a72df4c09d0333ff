// Package chart holds the tests of the Helm chart: what it renders, with Helm itself; that its roles are those of
// `kbridge rbac`; that an API server takes each object; and that what is generated from values.yaml is current.
package chart

//go:generate go test -run Generated -update .
