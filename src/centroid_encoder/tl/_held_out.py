from centroid_encoder.tl._result import HeldOut as HeldOut, read_held_out as read_held_out
