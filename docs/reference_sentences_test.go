package docs_test

// sentences returns what each field that decodes a part of a configuration file means to a user, by its
// place in the types of internal/config.
func sentences() map[string]string {
	return map[string]string{
		"castleSyntax.Version": "versions of castle that may work on the repository, " +
			"such as \">= 1.2\"; a development build always may",
		"castleSyntax.Defaults": "settings of all stages of all clusters",
		"castleSyntax.Defaults.Timeout": "timeout of the gates of stages that have none of " +
			"their own, such as \"30m\"",
		"castleSyntax.Defaults.Inputs": "values of variables, below terraform.tfvars and " +
			"above the variable's default",
		"castleSyntax.State": "the states of all clusters: where they are and what " +
			"is kept of them",
		"castleSyntax.Terraform": "the program that runs the stages",
		"castleSyntax.Terraform.Binary": "terraform, or tofu for OpenTofu 1.12 or newer; " +
			"terraform if not set, and CASTLE_TERRAFORM overrides it",
		"castleSyntax.Runs": "the runs that castle remembers",
		"castleSyntax.Runs.Keep": "of how many runs castle keeps the journals and " +
			"receipts, at least 1; 50 if not set",
		"castleSyntax.GitOps": "the repository that Flux reads, of clusters without " +
			"a block of their own",
		"clusterSyntax.Cluster": "settings of the whole cluster",
		"clusterSyntax.Cluster.Protect": "true: castle destroy, recreate and nuke refuse to " +
			"destroy the cluster",
		"clusterSyntax.Cluster.Labels": "labels by which --select chooses clusters, such as " +
			"{ env = \"staging\" }: constants, with the syntax of Kubernetes",
		"clusterSyntax.GitOps": "the repository that Flux reads; it replaces the " +
			"block in castle.hcl",
		"clusterSyntax.Stages": "a stage of the cluster; what it sets replaces the " +
			"same in stage.hcl, inputs and arguments key by key",
		"entry.Name": "the name of the stage in this cluster, which is not " +
			"that of a layer",
		"entry.Source": "the stage's folder LAYER/STAGE: in stages/ of the " +
			"repository, or else in the library",
		"entry.Enabled": "false: castle does not create the stage, because " +
			"something else installs it, or nothing does",
		"entry.Delegate": "of a disabled stage: the stage that checks its " +
			"gates, because it installs the same",
		"entry.Timeout": "timeout of the stage's gates that have none of their own",
		"entry.Inputs": "values of the stage's variables: expressions, which " +
			"may read outputs of layers",
		"entry.Needs": "layers that come first although no value flows; it " +
			"replaces the list in stage.hcl",
		"entry.Gates": "arguments that replace those of a gate in stage.hcl",
		"entry.Survives": "data that outlive the cluster: castle saves them before a destroy, and the next " +
			"cluster begins with them (docs/data.md)",
		"gitopsBlock.Repository": "the folder of a clone of what Flux reads, relative " +
			"to this file",
		"stageSyntax.Stage": "the stage itself; the block is required",
		"stageSyntax.Gates": "a check that the stage is ready: what needs the " +
			"stage starts only when all its gates are open",
		"stageSyntax.Preflights": "a check that must pass before the stage changes " +
			"anything; it runs as early as its arguments are " +
			"known",
		"stageSyntax.Adopts": "an object that castle imports into the state if it " +
			"exists and the state lacks it",
		"stageSyntax.Replaces": "a resource that castle replaces with the machine that it " +
			"configures, though nothing of its own has changed",
		"replaceSyntax.Address": "the address of the resource in the stage's module, whose " +
			"keys are the machines' names",
		"replaceSyntax.Instance": "what changes with each machine, by key: platform.instance; " +
			"castle plans the keys with -replace whose last apply had another one",
		"stageBlock.Summary": "one sentence about the purpose of the stage, for " +
			"castle stage list",
		"stageBlock.EndsCluster": "true, in the layer platform alone: everything in the" +
			" cluster ends with this stage, and a destroy of it " +
			"contacts no object there",
		"stageBlock.Persistent": "true: castle destroy leaves the stage unless --all " +
			"is given",
		"stageBlock.Volatile": "true: castle compares the stage with its source on " +
			"each create and plan: a token may have been rotated",
		"stageBlock.Timeout": "timeout of the stage's gates that have none of their" +
			" own",
		"stageBlock.Inputs": "values of the stage's variables: expressions, which " +
			"may read outputs of the same or an earlier layer",
		"stageBlock.Needs": "layers that come first although no value flows",
		"blockSyntax.Type": "the type of the gate or preflight, such as workload " +
			"(docs/gates.md)",
		"blockSyntax.Label": "a name of your own: type and label are the name of " +
			"the gate or preflight, such as workload.controller",
		"blockSyntax.Args": "the arguments of the type; a gate also takes " +
			"timeout, stable (how often in a row it must be open), " +
			"needs (layers: the gate is deferred until they " +
			"are ready) and when (false: the stage does without it)",
		"adoptSyntax.Address": "the address of the resource in the stage's module, " +
			"such as infisical_secret.kubeconfig",
		"adoptSyntax.ID": "the id that Terraform imports; null or empty: there " +
			"is nothing to adopt",
		"adoptSyntax.Exists": "a look whether the object exists; without it, castle" +
			" tries the import",
		"adoptSyntax.Exists.Type": "the type of the look",
		"adoptSyntax.Exists.Args": "the arguments of the type, and timeout",
		"fleetSyntax.Waves": "clusters that may be changed at the same time; waves come one after the " +
			"other. A cluster belongs to the first wave that matches it",
		"waveSyntax.Name": "the name of the wave",
		"waveSyntax.Select": "the labels of its clusters: conditions `key=value`, `key!=value`, `key`, " +
			"`!key` or `key in (a,b)`, separated by commas; every cluster that no earlier wave has, if not " +
			"set",
		"waveSyntax.Parallel": "how many of its clusters are changed at a time; the value of `--parallel` " +
			"if not set",
		"waveSyntax.Canary": "how many of its clusters come first: the others begin when these have " +
			"succeeded and soaked",
		"waveSyntax.MaxFailures": "how many of its clusters may fail before the wave does; 0 if not set",
		"waveSyntax.Approval":    "somebody has to approve the wave before it begins",
		"waveSyntax.Pause":       "the time between the end of the wave before and the beginning of this one",
		"waveSyntax.Soak": "how long the gates of its clusters must stay open, after the canary and after " +
			"the wave, before anything else begins",
		"stateSyntax.Snapshots": "how many snapshots castle keeps of each stage's " +
			"state, at least 2; 20 if not set",
		"stateSyntax.Store": "the URL of the store that several machines share; " +
			"without one, states are in the state directory alone",
		"stateSyntax.WorkingCopy": "memory: no secret of the states touches a disk; requires a store and " +
			"recipients; disk if not set",
		"stateSyntax.Encryption": "castle encrypts with age what leaves this machine: " +
			"the content of the store, and saved plans",
		"stateSyntax.Encryption.Recipients": "public keys of age, age1…: who can read the content",
		"stateSyntax.Encryption.Signers":    "public keys, castle-ed25519:…: whose commits castle accepts",
	}
}
