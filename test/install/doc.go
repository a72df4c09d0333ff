// Package install installs kbridge as users do: from the Dockerfile and the Helm chart, on a cluster with a real node
// (kubelet, containerd, kube-proxy) that the test starts in namespaces of its own. `make install-test` runs it; it needs
// Linux and root, and installs what it needs of Debian.
//
// The test binary runs in four stages, each of which starts the next one:
//
//   - outside: builds programs and images, and makes control groups;
//   - grouped: in the groups, outside of the namespaces, so that the first stage can remove the groups;
//   - first: the first process in namespaces of their own for mounts, network, processes, and so on. It makes the node's
//     file systems and network, and reaps what dies. When it ends, everything that the node has started ends with it:
//     pods and shims, mounts, bridges and rules of a firewall;
//   - tests: starts the cluster and runs the tests.
package install
