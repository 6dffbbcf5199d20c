// Package gates holds the tests of castle's Kubernetes gates against a real Kubernetes API.
// Objects, admission, controllers and watches answer as in a real cluster, so these tests find a
// gate that misreads them. The unit tests beside the gates define the message for each answer;
// these tests prove that the API gives such answers.
//
// One control plane serves all tests, because a process can run only one. The tests run one after
// another, because they share nodes, classes and definitions. Each test creates its own namespace
// and deletes its objects at its end.
package gates
