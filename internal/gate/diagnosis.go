package gate

// Diagnosis is what the surroundings of a closed gate say. It never holds a
// Secret's data, nor anything else that opens a door.
type Diagnosis struct {
	// Files are written below the run's diagnosis folder, by slash-separated name:
	// "pods/metallb-system/metallb-speaker-x2x9k.log". Gates that see the same
	// thing give it the same name.
	Files map[string][]byte
	// Cause is the likely cause, one sentence; empty if nothing known fits.
	Cause string
	// Look is the command with which a person looks further: "kubectl -n
	// metallb-system describe daemonset metallb-speaker". Whoever prints it says
	// which kubeconfig or talosconfig it needs. Empty if there is none.
	Look string
	// Release is the Helm release, namespace/name, that is installed and whose
	// chart has what is missing: it was deleted since, which Helm and Terraform do
	// not notice. Whoever knows who installed it knows the way out. Mostly empty.
	Release string
}
