"""MQTT 3.1.1, as a subscriber: `packets` is the wire, `topics` what a topic says, `subscribe` the collector."""
