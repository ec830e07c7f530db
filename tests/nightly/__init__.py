"""The long campaigns one after the other, and one summary of them."""
