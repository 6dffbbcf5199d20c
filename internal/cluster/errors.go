package cluster

// UsageError reports a request that castle cannot carry out as given.
type UsageError struct{ Message string }

func (e *UsageError) Error() string { return e.Message }
