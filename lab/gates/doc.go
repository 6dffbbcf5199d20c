// Package gates holds the tests of castle's Kubernetes gates against a real
// Kubernetes API: objects, admission, controllers and watches answer as they
// would at home, so that a gate which reads them wrongly is found here and not
// in somebody's cluster. The unit tests beside the gates say what each answer
// must read like; these say that the API really gives such answers.
//
// One control plane serves all tests, because a process can hold no more. They
// run one after another: nodes, classes and definitions belong to all. Each
// takes a namespace of its own and removes what it made when it ends.
package gates
