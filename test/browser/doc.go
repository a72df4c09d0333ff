// Package browser holds the tests of the page at /, in headless Chromium: with the real daemon, a real API server and a
// real NATS server, and with data that only a test has. `make browser` installs Chromium, which the tests need.
package browser
