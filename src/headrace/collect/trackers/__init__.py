"""What trackers in web pages, phones and servers send: Segment, Snowplow, PostHog, Google's Measurement Protocol."""
