package cluster

// UsageError is a request that cannot be carried out as it was made.
type UsageError struct{ Message string }

func (e *UsageError) Error() string { return e.Message }
